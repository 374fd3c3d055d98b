"""transposed: matrices are stored with their axes swapped, as Conv1D stores what Linear expects.

extra-axis: tensors have an axis of length 1 in front of the expected shape, as some merges write.

To do: Transpose the matrices when the weights are converted, including square matrices of the same
modules; or reshape the tensors to the expected shape.
"""

from collections.abc import Iterator, Sequence

from auditor.diagnosis.case import Case, Proposal
from auditor.findings import MatchedPair

_FIT = {"extra-axis": "without the axis", "transposed": "when turned round"}


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model without an axis of length 1 in front, then with tensors transposed."""
    pairs = case.mismatched
    if flat := [one for one in pairs if one.stored.shape == (1, *one.expected.shape)]:
        fix = "reshape them to the expected shapes, without another change, and save them again"
        yield _proposal(case, "extra-axis", flat, "have an axis of length 1 too many", fix)
    if turned := [one for one in pairs if one.stored.shape in _turned(one.expected.shape)]:
        fix = "transpose them when the weights are converted, the square ones of the same modules "
        fix += "too, and save them again"
        yield _proposal(case, "transposed", turned, "are stored transposed", fix)


def _turned(shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return the shape with all axes in reverse order, and with the last two axes swapped."""
    return {shape[::-1], (*shape[:-2], *shape[:-3:-1])}


def _proposal(
    case: Case, cause: str, pairs: Sequence[MatchedPair], fault: str, fix: str
) -> Proposal:
    first, count = pairs[0], len(pairs)
    return Proposal(
        cause=cause,
        change=case.as_expected(pairs),
        summary=f"{count:,} tensors {fault}, such as {first.stored.name} {first.stored.shape}, "
        f"expected {first.expected.shape}",
        fix=fix,
        evidence=(f"{count:,} of {len(case.mismatched):,} shapes fit {_FIT[cause]}",),
    )
