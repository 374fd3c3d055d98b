"""The stored tensors, grouped by shape and by names that differ only in their numbers."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from auditor.analytic.dims import Dim, dim
from auditor.analytic.outline import ClassTree, leaves, spellings
from auditor.bounded.json_text import JsonFile
from auditor.errors import CheckpointError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.packing import Shape
from auditor.names.kinds import NameKind, Numbers, chosen_of, kinds_of, module_counts
from auditor.names.parts import number_in_list
from auditor.tensors import StoredTensor


class HeldKind(NamedTuple):
    """Stored tensors of one shape whose names differ only in their numbers."""

    first: str  # the name with the lowest numbers; in a file, layer 10 is before layer 9
    last: str
    shape: Shape | None  # None if only an index names them
    number: int  # number of tensors


class HeldTensors:
    """The names and shapes of a model's stored tensors, after unpacking."""

    def __init__(
        self, shapes: Mapping[str, Shape | None], kinds: tuple[NameKind, ...] = ()
    ) -> None:
        self.shapes = shapes
        self._kinds_of_more = kinds  # kinds of names that include all names of these tensors
        self._by_layer: dict[str, tuple[tuple[str, int], ...]] = {}

    @cached_property
    def kinds(self) -> tuple[HeldKind, ...]:
        held_kinds: list[HeldKind] = []
        for kind in self.name_kinds:
            numbers_by_shape: dict[Shape | None, list[Numbers]] = {}
            for name, numbers in zip(kind.names, kind.numbers, strict=True):
                numbers_by_shape.setdefault(self.shapes[name], []).append(numbers)
            for shape, same_shape in numbers_by_shape.items():
                first = kind.filled(min(same_shape, key=_order))
                last = kind.filled(max(same_shape, key=_order))
                held_kinds.append(HeldKind(first, last, shape, len(same_shape)))
        return tuple(held_kinds)

    @cached_property
    def name_kinds(self) -> tuple[NameKind, ...]:
        """The names by kind, regardless of shape."""
        if self._kinds_of_more:
            return chosen_of(self._kinds_of_more, self.shapes.keys())
        return kinds_of(self.shapes)

    def renamed(self, rename: Callable[[str], str]) -> "HeldTensors":
        """Return the tensors under other names; `rename` maps old to new patterns."""
        others = {
            kind.pattern: other
            for kind in self.name_kinds
            if (other := rename(kind.pattern)) != kind.pattern
        }
        if not others:
            return self
        shapes: dict[str, Shape | None] = {}
        for kind in self.name_kinds:
            renamed = NameKind(others.get(kind.pattern, kind.pattern))
            for name, numbers in zip(kind.names, kind.numbers, strict=True):
                shapes[renamed.filled(numbers)] = self.shapes[name]
        return HeldTensors(shapes)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of modules of each list, by the list's name: its highest number plus one."""
        return module_counts(self.name_kinds)

    def by_layer(self, within: str) -> tuple[tuple[str, int], ...]:
        """Return a name of each kind in each module of the list `within`, with its number."""
        if within not in self._by_layer:
            first: dict[tuple[int, str], str] = {}
            for kind in self.name_kinds:
                for name in kind.names:
                    if (number := number_in_list(name, within)) is not None:
                        first.setdefault((number, kind.pattern), name)
            self._by_layer[within] = tuple((name, number) for (number, _), name in first.items())
        return self._by_layer[within]

    def equations(self, expected: ClassTree) -> Iterator[tuple[Dim, int]]:
        """Yield (formula, stored length) of each axis, and of each list of modules."""
        for leaf in leaves(expected.tree):
            shapes = map(self.shapes.get, spellings(leaf.name, expected.prefix))
            shape = next((one for one in shapes if one and len(one) == len(leaf.shape)), None)
            if shape is None:
                continue
            yield from zip(map(dim, leaf.shape), shape, strict=True)
            for place in leaf.lists:
                counts = map(self.counts.get, spellings(place.name, expected.prefix))
                yield from ((place.modules, count) for count in islice(filter(None, counts), 1))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """All lengths of axes, and all numbers of modules in lists, the most frequent first."""
        frequency = Counter(length for kind in self.kinds for length in kind.shape or ())
        frequency.update(set(self.counts.values()))
        return tuple(sorted(frequency, key=lambda length: -frequency[length]))


def _order(numbers: Numbers) -> list[tuple[int, str]]:
    """Return a key that sorts numbers of any length without parsing them."""
    return [(len(number), number) for number in numbers]


def held(
    tensors: tuple[StoredTensor, ...],
    kinds: tuple[NameKind, ...],
    values: Mapping[str, object],
    packing: JsonFile | None,
) -> HeldTensors:
    """Unpack the stored tensors as the config declares; keep them packed if that fails.

    `kinds` are the kinds of the tensors' names.
    """
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    try:
        declared = declaration(values, packing)
        if declared is not None and unknown_quantization(declared) is not None:
            return HeldTensors(shapes, kinds)
        unpacked = unpack_tensors(tensors, declared, lambda _: None)
    except CheckpointError:
        return HeldTensors(shapes, kinds)
    packed = {piece.stored.name for piece in unpacked.tensors}
    packed.update(one.name for note in unpacked.quantization_data for one in note.tensors)
    plain = {name: shape for name, shape in shapes.items() if name not in packed}
    plain.update((piece.name, piece.shape) for piece in unpacked.tensors)
    return HeldTensors(plain, kinds if plain.keys() <= shapes.keys() else ())
