"""stale-index: the index belongs to another save than the weight files next to it.

To do: Create the index anew from the existing files, or upload the files that it names.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from auditor.checkpoint.changes import of_files
from auditor.checkpoint.snapshot import read_index
from auditor.containers.index import indexed_files
from auditor.diagnosis.case import Case, Undoing
from auditor.findings import BadIndex
from auditor.messages import named

CAUSE = "stale-index"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with a new index, made from the stored files."""
    snapshot, index = case.snapshot, read_index(case.snapshot)
    reasons = [one.reason for one in case.alarms if BadIndex.describes(one)]
    if index is None or not reasons:
        return
    places = indexed_files(index)
    shards, there = set(places.values()), {head.name for head in snapshot.headers}
    if shards.difference(there, snapshot.unopened) or not there:
        return  # some header was not read
    endings = tuple({PurePosixPath(shard).suffix for shard in shards})
    lost = len(snapshot.unopened)
    if lost and not any(name.endswith(endings) for name in there - shards):
        return  # no other file in the index's format could belong to the model
    strange = len(places.keys() - case.shapes.keys())
    moved = sum(places.get(one.name) != one.file for one in case.stored)
    has_other_alarms = any(not BadIndex.describes(one) for one in case.alarms)
    if has_other_alarms and not (strange or moved or lost):
        return  # the total is wrong because of the other findings
    why = "its total_size is not theirs"
    if lost:
        count = "none" if lost == len(shards) else f"{len(shards) - lost:,}"
        why = f"{count} of the {len(shards):,} files that it names is there"
    elif strange or moved:
        counts = {"names in no file": strange, "tensors in another file than it names": moved}
        why = ", ".join(f"{what}: {count:,}" for what, count in counts.items() if count)
    elif set(reasons) <= {*index.faults, index.hub_fault}:
        why = ""  # an index of the right save that has other faults
    summary = f"{named(index.file)} belongs to another save than the files ({why})"
    yield Undoing(
        cause=CAUSE,
        snapshot=of_files(snapshot, snapshot.headers),
        summary=summary if why else reasons[0],
        fix=f"write a new {index.file} (save_pretrained does), or upload the right one",
        evidence=("with an index of the files that are there, nothing differs",),
    )
