"""transposed: matrices are stored with their axes swapped, as Conv1D stores what Linear expects.

To do: Transpose the matrices when the weights are converted, including square matrices of the same
modules.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_shapes

CAUSE = "transposed"


def undoings(case: Case) -> Iterator[Undoing]:
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
