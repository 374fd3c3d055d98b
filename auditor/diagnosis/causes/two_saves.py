"""two-saves: the repository contains shards of two different saves.

To do: Delete the shards of the older save, and keep the shards that the newer index names.
"""

from collections.abc import Iterator

from auditor.checkpoint.changes import of_files
from auditor.checkpoint.shard_names import Split, split_of
from auditor.checkpoint.snapshot import WeightHeader
from auditor.diagnosis.case import Case, Undoing

CAUSE = "two-saves"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with only one save's files, once for each save, complete saves first."""
    heads_by_split: dict[Split, list[WeightHeader]] = {}
    for head in case.snapshot.headers:
        if split := split_of(head.name):
            heads_by_split.setdefault(split, []).append(head)
    if len(heads_by_split) < 2:  # noqa: PLR2004 - saves
        return
    saves = sorted(
        heads_by_split.items(), key=lambda one: (len(one[1]) < one[0].total, -len(one[1]))
    )
    counts = " and ".join(
        f"{len(heads):,} of -of-{split.of}" for split, heads in sorted(heads_by_split.items())
    )
    for split, heads in saves:
        others = ", ".join(f"*-of-{one.of}{one.ending}" for one in heads_by_split if one != split)
        yield Undoing(
            cause=CAUSE,
            snapshot=of_files(case.snapshot, heads),
            summary=f"the folder has files of {len(saves)} saves: {counts}",
            fix=f"delete {others}, and keep the index of the {split.total:,} others",
            evidence=(f"the {len(heads):,} files *-of-{split.of}{split.ending} are a model alone",),
        )
