"""stale-index: the index belongs to another save than the weight files next to it.

To do: Create the index anew from the existing files, or upload the files that it names.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from auditor.checkpoint.changes import of_files
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.weight_files import read_index
from auditor.findings import BadIndex
from auditor.messages import named
from auditor.names import folder_of

CAUSE = "stale-index"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with a new index, made from the stored files."""
    snapshot, index = case.snapshot, read_index(case.snapshot)
    reasons = [one.reason for one in case.alarms if isinstance(one, BadIndex)]
    if index is None or not reasons:
        return
    folder = folder_of(index.file)
    shards = {f"{folder}{shard}" for shard in index.shards}
    there = {head.name for head in snapshot.headers}
    if shards.difference(there, snapshot.unopened) or not there:
        return  # some header was not read
    endings = tuple({PurePosixPath(shard).suffix for shard in shards})
    if snapshot.unopened and not any(name.endswith(endings) for name in there - shards):
        return  # no other file in the index's format could belong to the model
    others = any(not isinstance(one, BadIndex) for one in case.alarms)
    strange = len(index.weight_map.keys() - case.shapes.keys())
    moved = sum(f"{folder}{index.weight_map.get(one.name)}" != one.file for one in case.stored)
    if others and not (strange or moved or snapshot.unopened):
        return  # the total is wrong because of the other findings
    stale = f"{named(index.file)} belongs to another save than the files"
    if snapshot.unopened:
        lost = len(snapshot.unopened)
        count = "none" if lost == len(shards) else f"{len(shards) - lost:,}"
        summary = f"{stale} ({count} of the {len(shards):,} files that it names is there)"
    elif strange or moved:
        counts = {"names in no file": strange, "tensors in another file than it names": moved}
        why = ", ".join(f"{what}: {count:,}" for what, count in counts.items() if count)
        summary = f"{stale} ({why})"
    elif set(reasons) <= {*index.faults, index.hub_fault}:
        summary = reasons[0]  # an index of the right save that has other faults
    else:
        summary = f"{stale} (its total_size is not theirs)"
    yield Undoing(
        cause=CAUSE,
        snapshot=of_files(snapshot, snapshot.headers),
        summary=summary,
        fix=f"write a new {index.file} (save_pretrained does), or upload the right one",
        evidence=("with an index of the files that are there, nothing differs",),
    )
