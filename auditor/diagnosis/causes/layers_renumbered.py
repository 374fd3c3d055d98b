"""layers-renumbered: layers counted from another start, or with gaps where some were taken out."""

import re
from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_names

CAUSE = "layers-renumbered"
_NUMBERED = re.compile(r"(.*?\.)(\d{1,6})(\..*)", re.DOTALL)


def undoings(case: Case) -> Iterator[Undoing]:
    """The layers of a list whose numbers are not 0 to n - 1, numbered so."""
    if not (case.unexpected or case.missing):
        return
    lists: dict[str, set[int]] = {}
    for tensor in case.stored:
        if found := _NUMBERED.fullmatch(tensor.name):
            lists.setdefault(found[1], set()).add(int(found[2]))
    for prefix, numbers in lists.items():
        order = {number: place for place, number in enumerate(sorted(numbers))}
        if all(number == place for number, place in order.items()):
            continue
        renames = {}
        for tensor in case.stored:
            found = _NUMBERED.fullmatch(tensor.name)
            if found and found[1] == prefix and order[int(found[2])] != int(found[2]):
                renames[tensor.name] = f"{prefix}{order[int(found[2])]}{found[3]}"
        first, last, count = min(numbers), max(numbers), len(numbers)
        how = f"from {first}" if last - first + 1 == count else f"with gaps, up to {last}"
        yield Undoing(
            cause=CAUSE,
            snapshot=with_names(case.snapshot, renames),
            renames=renames,
            summary=f"the {count} layers of {prefix.removesuffix('.')} are numbered {how}",
            fix=f"number them from 0 to {count - 1}",
            evidence=(f"{len(renames):,} names get another number",),
        )
