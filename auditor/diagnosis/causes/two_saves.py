"""two-saves: shards of two different saves lie together.

To do: Delete the shards of the older save, and keep those that the index of the newer names.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import of_files
from auditor.diagnosis.weight_files import splits

CAUSE = "two-saves"


def undoings(case: Case) -> Iterator[Undoing]:
    """The files of each save alone, the whole ones first."""
    found = splits(case)
    if len(found) < 2:  # noqa: PLR2004 - saves
        return
    saves = sorted(found.items(), key=lambda one: (len(one[1]) < one[0].total, -len(one[1])))
    said = " and ".join(
        f"{len(heads):,} of -of-{split.of}" for split, heads in sorted(found.items())
    )
    for split, heads in saves:
        others = ", ".join(f"*-of-{one.of}{one.ending}" for one in found if one != split)
        yield Undoing(
            cause=CAUSE,
            snapshot=of_files(case.snapshot, heads),
            summary=f"files of {len(found)} saves lie together: {said}",
            fix=f"delete {others}, and keep the index of the {split.total:,} others",
            evidence=(f"the {len(heads):,} files *-of-{split.of}{split.ending} are a model alone",),
        )
