"""What a GGUF file says of its model: its metadata, and which tensors it has."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from auditor.containers.gguf import GgufHeader

Values = dict[str, Any]


class Facts(NamedTuple):
    """The metadata of one architecture, and what its tensors show."""

    header: GgufHeader
    arch: str
    shapes: Mapping[str, tuple[int, ...]]  # of all tensors, also of other shards

    def number(self, key: str) -> int | None:
        """`general.architecture`'s own key; of a value for each layer the largest."""
        value = self.header.metadata.get(f"{self.arch}.{key}")
        if isinstance(value, tuple) and value:
            numbers = [item for item in value if type(item) is int]
            return max(numbers) if len(numbers) == len(value) else None
        return value if type(value) is int else None

    def each(self, key: str) -> tuple[int, ...]:
        """A value for each layer; () where there is one for all."""
        value = self.header.metadata.get(f"{self.arch}.{key}")
        numbers = value if isinstance(value, tuple) else ()
        return tuple(item for item in numbers if type(item) is int)

    def has(self, *names: str) -> bool:
        """Whether any block has a tensor of one of these names: "attn_q.bias"."""
        endings = tuple(f".{name}" for name in names)
        return any(tensor.endswith(endings) for tensor in self.shapes)

    def width(self, name: str, axis: int) -> int | None:
        """The size of an axis of the first block that has that tensor."""
        for tensor, shape in self.shapes.items():
            if tensor.endswith(f".{name}") and len(shape) >= -axis:
                return shape[axis]
        return None


class Architecture(NamedTuple):
    """What llama.cpp calls an architecture, in transformers' words."""

    model_type: str
    name: str  # the class
    more: Callable[[Facts], Values] = lambda _facts: {}  # keys beside those that all share
    tied: bool = False  # always: a stored output is a copy
    target: str | None = None  # the class to audit for, where that is another one
    nulls: tuple[str, ...] = ()  # keys that are null where nothing says them
