"""What the files hold, by kinds of tensors: the layers of a model have the same."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from auditor.diagnosis.name_kinds import MOST_DIGITS, NameKind, Numbers, chosen_of, kinds_of
from auditor.errors import CheckpointError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.packing import Shape
from auditor.tensors import StoredTensor


class HeldKind(NamedTuple):
    """Stored tensors whose names differ in numbers alone, and whose shapes are the same."""

    first: str  # names, by their numbers: files have layer 10 before layer 9
    last: str
    shape: Shape | None  # None: only an index names them
    number: int


class HeldTensors:
    """The tensors of a model inside the stored ones: names and shapes, unpacked."""

    def __init__(
        self, shapes: Mapping[str, Shape | None], kinds: tuple[NameKind, ...] = ()
    ) -> None:
        self.shapes = shapes
        self._kinds_of_more = kinds  # of these names, and of others

    @cached_property
    def kinds(self) -> tuple[HeldKind, ...]:
        found: list[HeldKind] = []
        for kind in self.name_kinds:
            alike: dict[Shape | None, list[Numbers]] = {}
            for name, numbers in zip(kind.names, kind.numbers, strict=True):
                alike.setdefault(self.shapes[name], []).append(numbers)
            for shape, several in alike.items():
                first, last = min(several, key=_order), max(several, key=_order)
                one = HeldKind(kind.filled(first), kind.filled(last), shape, len(several))
                found.append(one)
        return tuple(found)

    @cached_property
    def name_kinds(self) -> tuple[NameKind, ...]:
        """The names by kind, whatever their shapes are."""
        if self._kinds_of_more:
            return chosen_of(self._kinds_of_more, self.shapes.keys())
        return kinds_of(self.shapes)

    def renamed(self, rename: Callable[[str], str]) -> "HeldTensors":
        """The same with other names, which `rename` makes of the pattern of each kind."""
        others = {
            kind.pattern: other
            for kind in self.name_kinds
            if (other := rename(kind.pattern)) != kind.pattern
        }
        if not others:
            return self
        found: dict[str, Shape | None] = {}
        for kind in self.name_kinds:
            renamed = NameKind(others.get(kind.pattern, kind.pattern))
            for name, numbers in zip(kind.names, kind.numbers, strict=True):
                found[renamed.filled(numbers)] = self.shapes[name]
        return HeldTensors(found)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many modules each list has, by its name: one more than its highest number."""
        return module_counts(self.name_kinds)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """All lengths of axes, and numbers of modules; those that most kinds have first."""
        often: dict[int, int] = {}
        for kind in self.kinds:
            for length in kind.shape or ():
                often[length] = often.get(length, 0) + 1
        for count in set(self.counts.values()):
            often[count] = often.get(count, 0) + 1
        return tuple(sorted(often, key=lambda length: -often[length]))


def module_counts(kinds: Iterable[NameKind]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kind in kinds:
        for at, place in enumerate(kind.places):
            for numbers in {found[: at + 1] for found in kind.numbers}:
                if len(numbers[at]) <= MOST_DIGITS:
                    before = kind.filled(numbers[:at], place)
                    counts[before] = max(counts.get(before, 0), int(numbers[at]) + 1)
    return counts


def _order(numbers: Numbers) -> list[tuple[int, str]]:
    """A key that sorts numbers of any length; it parses none of them."""
    return [(len(number), number) for number in numbers]


def held(
    tensors: tuple[StoredTensor, ...],
    kinds: tuple[NameKind, ...],
    values: Mapping[str, object],
    files: Mapping[str, bytes],
) -> HeldTensors:
    """What is stored, unpacked as the config says; as it is where that cannot be done.

    `kinds` are those of the tensors' names.
    """
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    try:
        declared = declaration(values, files)
        if declared is not None and unknown_quantization(declared) is not None:
            return HeldTensors(shapes, kinds)
        unpacked = unpack_tensors(tensors, declared, lambda _: None)
    except CheckpointError:
        return HeldTensors(shapes, kinds)
    names = frozenset(shapes)
    for piece in unpacked.tensors:
        shapes.pop(piece.stored.name, None)
    for note in unpacked.quantization_data:
        for tensor in note.tensors:
            shapes.pop(tensor.name, None)
    shapes.update((piece.name, piece.shape) for piece in unpacked.tensors)
    return HeldTensors(shapes, kinds if shapes.keys() <= names else ())
