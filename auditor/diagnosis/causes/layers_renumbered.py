"""layers-renumbered: layers counted from another start, or with gaps where some were taken out.

To do: Number the layers from 0, one after the other, and set their number in the config.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_names

CAUSE = "layers-renumbered"
_NUMBERED = re.compile(r"(.*?\.)(\d{1,6})(\..*)", re.DOTALL)


def undoings(case: Case) -> Iterator[Undoing]:
    """All lists of layers that are not numbered from 0 to n - 1, numbered so; then each alone."""
    if not (case.unexpected or case.missing):
        return
    lists: dict[str, dict[int, list[re.Match[str]]]] = {}
    for tensor in case.stored:
        if found := _NUMBERED.fullmatch(tensor.name):
            lists.setdefault(found[1], {}).setdefault(int(found[2]), []).append(found)
    renumbered = [
        _Layers(prefix, tuple(sorted(layers)), renames)
        for prefix, layers in lists.items()
        if (renames := _renames(layers))
    ]
    if len(renumbered) > 1:
        yield _undoing(case, renumbered)
    for one in renumbered:
        yield _undoing(case, [one])


class _Layers(NamedTuple):
    """A list of layers, and what its names would be from 0 on."""

    prefix: str
    numbers: tuple[int, ...]
    renames: dict[str, str]

    @property
    def said(self) -> str:
        first, last, count = self.numbers[0], self.numbers[-1], len(self.numbers)
        how = f"from {first}" if last - first + 1 == count else f"with gaps, up to {last}"
        return f"the {count} layers of {self.prefix.removesuffix('.')} are numbered {how}"


def _renames(layers: dict[int, list[re.Match[str]]]) -> dict[str, str]:
    return {
        name[0]: f"{name[1]}{place}{name[3]}"
        for place, number in enumerate(sorted(layers))
        for name in layers[number]
        if place != number
    }


def _undoing(case: Case, lists: list[_Layers]) -> Undoing:
    renames = {name: other for one in lists for name, other in one.renames.items()}
    return Undoing(
        cause=CAUSE,
        snapshot=with_names(case.snapshot, renames),
        renames=renames,
        summary=" and ".join(one.said for one in lists),
        fix="number them from 0, one after the other",
        evidence=(f"{len(renames):,} names get another number",),
    )
