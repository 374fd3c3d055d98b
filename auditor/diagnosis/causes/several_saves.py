"""two-saves: the repository contains shards of two different saves.

To do: Delete the shards of the older save, and keep the shards that the newer index names.

stored-twice: some tensors of one save are in two files.

To do: Remove the copies that the index does not name, after checking that both have equal values;
or write the files again.

stale-index: the index belongs to another save than the weight files next to it.

To do: Create the index anew from the existing files, or upload the files that it names.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec.structs import replace

from auditor.checkpoint.change import Change
from auditor.checkpoint.shard_names import Split, split_of
from auditor.checkpoint.snapshot import WeightHeader, read_index
from auditor.containers.index import indexed_files
from auditor.diagnosis.case import Case, Proposal
from auditor.errors import CheckpointError
from auditor.findings import BadIndex
from auditor.messages import listed, named


def two_saves(case: Case) -> Iterator[Proposal]:
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
        kept = {head.name for head in heads}
        gone = (head.name for head in case.snapshot.headers if head.name not in kept)
        yield Proposal(
            cause="two-saves",
            change=Change(files=dict.fromkeys(gone), is_reindexed=True),
            summary=f"the folder has files of {len(saves)} saves: {counts}",
            fix=f"delete {others}, and keep the index of the {split.total:,} others",
            evidence=(f"the {len(heads):,} files *-of-{split.of}{split.ending} are a model alone",),
        )


def stored_twice(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with one copy of each tensor: the copy in the index, or the first."""
    files: dict[str, list[str]] = {}
    for tensor in case.stored:
        files.setdefault(tensor.name, []).append(tensor.file)
    twice = {name: places for name, places in files.items() if len(places) > 1}
    if not twice or len(twice) == len(files):
        return
    indexed = indexed_files(read_index(case.snapshot))
    kept = {
        name: indexed[name] if indexed.get(name) in places else places[0]
        for name, places in twice.items()
    }
    both = " and ".join(sorted({file for places in twice.values() for file in places})[:3])
    takes = f"; the index takes them from {listed(sorted(set(kept.values())))}" if indexed else ""
    count = "1 tensor is" if len(twice) == 1 else f"{len(twice):,} tensors are"
    heads = (_without_copies(kept, head) for head in case.snapshot.headers)
    yield Proposal(
        cause="stored-twice",
        change=Change(files={head.name: head for head in heads}, is_reindexed=True),
        summary=f"{count} in two files, {both}{takes}",
        fix="write the files again, each tensor once; or compare the copies (audit --values) and "
        "remove those that the index does not name",
        evidence=tuple(sorted(twice)[:3]),
    )


def _without_copies(kept: dict[str, str], head: WeightHeader) -> WeightHeader:
    table = head.parsed
    if isinstance(table, CheckpointError):
        return head
    tensors = tuple(one for one in table.tensors if kept.get(one.name, head.name) == head.name)
    return replace(head, known=replace(table, tensors=tensors))


def stale_index(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with a new index, made from the stored files."""
    snapshot, index = case.snapshot, read_index(case.snapshot)
    reasons = [one.reason for one in case.alarms if isinstance(one, BadIndex)]
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
    has_other_alarms = any(not isinstance(one, BadIndex) for one in case.alarms)
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
    yield Proposal(
        cause="stale-index",
        change=Change(is_reindexed=True),
        summary=summary if why else reasons[0],
        fix=f"write a new {index.file} (save_pretrained does), or upload the right one",
        evidence=("with an index of the files that are there, nothing differs",),
    )
