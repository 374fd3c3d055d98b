"""transposed: matrices are stored with their axes swapped, as Conv1D stores what Linear expects.

extra-axis: tensors have an axis of length 1 in front of the expected shape, as some merges write.

To do: Transpose the matrices when the weights are converted, including square matrices of the same
modules; or reshape the tensors to the expected shape.
"""

from collections.abc import Iterator

from auditor.checkpoint.changes import with_shapes
from auditor.diagnosis.case import Case, Undoing

CAUSE, EXTRA = "transposed", "extra-axis"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the model with tensors transposed, or without an axis of length 1 in front."""
    yield from _with_less_axes(case)
    yield from _transposed(case)


def _with_less_axes(case: Case) -> Iterator[Undoing]:
    """Yield the model without a first axis of length 1 in tensors whose shapes then fit."""
    flat = {
        pair.stored.name: pair.expected.shape
        for pair in case.mismatched
        if pair.stored.shape == (1, *pair.expected.shape)
    }
    if flat:
        first, shape = next(iter(flat.items()))
        yield Undoing(
            cause=EXTRA,
            snapshot=with_shapes(case.snapshot, flat),
            summary=f"{len(flat):,} tensors have an axis of length 1 too many, such as {first} "
            f"{case.shapes[first]}, expected {shape}",
            fix="reshape them to the expected shapes, without another change, and save them again",
            evidence=(f"{len(flat):,} of {len(case.mismatched):,} shapes fit without the axis",),
        )


def _transposed(case: Case) -> Iterator[Undoing]:
    """Yield the model with tensors transposed (last two axes, or all) if their shapes then fit."""
    turned = {
        pair.stored.name: pair.expected.shape
        for pair in case.mismatched
        if pair.stored.shape in _turned(pair.expected.shape)
    }
    if not turned:
        return
    first = next(iter(turned))
    shapes = f"{case.shapes[first]}, expected {turned[first]}"
    yield Undoing(
        cause=CAUSE,
        snapshot=with_shapes(case.snapshot, turned),
        summary=f"{len(turned):,} tensors are stored transposed, such as {first} {shapes}",
        fix="transpose them when the weights are converted, the square ones of the same modules "
        "too, and save them again",
        evidence=(f"{len(turned):,} of {len(case.mismatched):,} shapes fit when turned round",),
    )


def _turned(shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {shape[::-1], (*shape[:-2], *shape[:-3:-1])} - {shape}
