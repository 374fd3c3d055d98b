"""What the files hold, by kinds of tensors: the layers of a model have the same."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from auditor.errors import CheckpointError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.packing import Shape
from auditor.tensors import StoredTensor

_Numbers = tuple[tuple[int, str], ...]  # (digits, number): of any length, and never parsed


class HeldKind(NamedTuple):
    """Stored tensors whose names differ in numbers alone, and whose shapes are the same."""

    first: str  # names, by their numbers: files have layer 10 before layer 9
    last: str
    shape: Shape | None  # None: only an index names them
    number: int


class HeldTensors:
    """The tensors of a model inside the stored ones: names and shapes, unpacked."""

    def __init__(self, shapes: Mapping[str, Shape | None]) -> None:
        self.shapes = shapes

    @cached_property
    def kinds(self) -> tuple[HeldKind, ...]:
        found: dict[tuple[str, Shape | None], list[tuple[_Numbers, str]]] = {}
        for name, shape in self.shapes.items():
            pattern, numbers = _pattern_and_numbers(name)
            found.setdefault((pattern, shape), []).append((numbers, name))
        return tuple(
            HeldKind(min(names)[1], max(names)[1], shape, len(names))
            for (_, shape), names in found.items()
        )

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many modules each list has, by its name: one more than its highest number."""
        return module_counts(self.shapes)

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


def module_counts(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        parts = name.split(".")
        for at, part in enumerate(parts):
            if part.isdecimal() and len(part) < 7:  # noqa: PLR2004 - digits of a million
                place = ".".join(parts[:at])
                counts[place] = max(counts.get(place, 0), int(part) + 1)
    return counts


def name_pattern(name: str) -> str:
    """The name without its numbers."""
    return _pattern_and_numbers(name)[0]


def _pattern_and_numbers(name: str) -> tuple[str, _Numbers]:
    parts, numbers = name.split("."), []
    for at, part in enumerate(parts):
        if part.isdecimal():
            numbers.append((len(part), part))
            parts[at] = "*"
    return ".".join(parts), tuple(numbers)


def held(
    tensors: tuple[StoredTensor, ...], values: Mapping[str, object], files: Mapping[str, bytes]
) -> HeldTensors:
    """What is stored, unpacked as the config says; as it is where that cannot be done."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    try:
        declared = declaration(values, files)
        if declared is not None and unknown_quantization(declared) is not None:
            return HeldTensors(shapes)
        unpacked = unpack_tensors(tensors, declared, lambda _: None)
    except CheckpointError:
        return HeldTensors(shapes)
    for piece in unpacked.tensors:
        shapes.pop(piece.stored.name, None)
    for note in unpacked.quantization_data:
        for tensor in note.tensors:
            shapes.pop(tensor.name, None)
    shapes.update((piece.name, piece.shape) for piece in unpacked.tensors)
    return HeldTensors(shapes)
