"""partial-upload: some shards are missing, as the index or the numbers of other shards show.

To do: Upload the absent files; without an index, upload the index too.

empty-file: a weight file contains no tensor, like the file of one rank of ZeRO-3.

To do: Save the weights again, with the parameters of all ranks gathered.
"""

from collections.abc import Collection, Iterator, Sequence

from auditor.checkpoint.change import Change
from auditor.checkpoint.selecting import index_name
from auditor.checkpoint.shard_names import GGUF_ENDING, Split, gaps, split_of
from auditor.checkpoint.snapshot import Snapshot, read_index
from auditor.containers.index import Index, indexed_files
from auditor.diagnosis.case import Case, Proposal
from auditor.errors import CheckpointError
from auditor.findings import BadConfig, BadIndex, CopyDiffers, Finding, Missing
from auditor.messages import listed, named
from auditor.reconciler.contents import no_file_of

CAUSE = "partial-upload"


def partial_upload(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with its absent shards, whose tensors the index or findings name."""
    snapshot, index = case.snapshot, read_index(case.snapshot)
    for finding in case.alarms:
        if CopyDiffers.describes(finding) and (split := split_of(finding.file)):
            files = {file.name for file in snapshot.files}
            yield from _of_numbers(split, files, (finding,), " of a copy of the weights")
    if any(head.name.lower().endswith(GGUF_ENDING) for head in snapshot.headers):
        yield from _of_gguf(case)
    elif index is not None and snapshot.unopened:
        yield _by_index(snapshot, index)
    elif index is not None or snapshot.index is None:
        yield from _by_numbers(case, index)


def _of_gguf(case: Case) -> Iterator[Proposal]:
    files = {head.name: None for head in case.snapshot.headers}
    for split in dict.fromkeys(filter(None, map(split_of, files))):
        # Only the first file has the metadata of the model.
        kinds = {BadIndex.kind, Missing.kind}
        if split.named(1) not in files:
            kinds.add(BadConfig.kind)
        proven = tuple(finding for finding in case.alarms if finding.kind in kinds)
        yield from _of_numbers(split, files, proven)


def _of_numbers(
    split: Split, files: Collection[str], proven: tuple[Finding, ...], copy: str = ""
) -> Iterator[Proposal]:
    """Yield the cause of some findings, if numbered files are absent."""
    if absent := split.absent(files):
        count = split.total - len(absent)
        instead = ", or delete the other files of that copy" if copy else ""
        yield Proposal(
            cause=CAUSE,
            proven=proven,
            summary=_there(count, f"{count:,} of the {split.total:,} files{copy}", absent),
            fix=f"upload {listed(absent)}{instead}",
            evidence=(f"the files are numbered up to {split.total:,}",),
        )


def _there(count: int, files: str, absent: Sequence[str]) -> str:
    return f"{files} {_are(count)} there: {listed(absent)} {_are(len(absent))} not"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _by_index(snapshot: Snapshot, index: Index) -> Proposal:
    """Return the proposal that adds the absent shards with the tensors that the index lists."""
    absent, shards = snapshot.unopened, set(indexed_files(index).values())
    others = [head.name for head in snapshot.headers if head.name not in shards]
    what = f"{len(absent):,} of the {len(shards):,} files that {index.file} names "
    what, instead = f"{what}{_are(len(absent))} not there", ""
    if len(absent) == len(shards):
        what = no_file_of(index)
        if snapshot.headers:
            instead = f", or delete {index.file} to load {listed(others)}"
    return Proposal(
        cause=CAUSE,
        change=Change(files=dict.fromkeys(others), listed=frozenset(absent)),
        summary=f"{what}: {listed(absent)}",
        # A folder or a cache may be an incomplete copy of a complete repository.
        fix=f"{'download or ' if snapshot.partial else ''}upload {listed(absent)}{instead}",
        evidence=("with what the index places in them nothing is missing",),
    )


def _by_numbers(case: Case, index: Index | None) -> Iterator[Proposal]:
    """Yield the snapshot with all numbered files and a complete index.

    The missing tensors are placed in the absent files. This also covers an incomplete export, whose
    index names only the existing files.
    """
    files = [head.name for head in case.snapshot.headers]
    saves = set(map(split_of, files))
    if len(saves) != 1:
        return
    [split] = saves
    if split is None and (len(files) == 1 or len(case.shapes) < len(case.stored)):
        return  # the only file of a model, or copies of one model
    absent = split.absent(files) if split else gaps(files)
    # If no numbered file is absent, the missing tensors are not in one.
    lacking = 0 if split and not absent else len(case.missing)
    if index is not None and not (
        split and lacking and set(indexed_files(index).values()) == set(files)
    ):
        return
    if len(files) == 1 and not lacking:
        return
    count = len(files)
    if not lacking:
        what = f"the {count:,} files are there, and their index is not"
    elif not absent:
        what = f"the {count:,} files are there, without an index, and lack {lacking:,} tensors"
    else:
        what = f"{count:,} of the {split.total:,} files" if split else "files with numbers"
        it = "it" if len(absent) == 1 else "them"
        other = f"{named(index.file)} does not name {it}" if index else "neither is their index"
        what = f"{_there(count, what, absent)}, and {other}"
    upload = [*(absent if lacking else ()), index.file if index else index_name(files[0])]
    yield Proposal(
        cause=CAUSE,
        change=case.adding_missing(*absent[:1]) if lacking else Change(is_reindexed=True),
        summary=what,
        fix=f"upload {'the absent files, and ' if lacking and not absent else ''}{listed(upload)}",
        evidence=(f"the files are numbered up to {split.total:,}",) if split else (),
    )


def empty_file(case: Case) -> Iterator[Proposal]:
    """Yield a proposal that adds the missing tensors, if some weight file contains no tensor."""
    empty = [
        head.name
        for head in case.snapshot.headers
        if not isinstance(head.parsed, CheckpointError) and not head.parsed.tensors
    ]
    if empty and case.missing:
        has = "has no tensor" if len(empty) == 1 else "have no tensors"
        yield Proposal(
            cause="empty-file",
            change=case.adding_missing(),
            summary=f"{listed(empty)} {has}: the parameters were not gathered when it was saved, "
            "as under ZeRO-3",
            fix="save the weights again with gathered parameters: "
            "stage3_gather_16bit_weights_on_model_save of DeepSpeed, or accelerator.get_state_dict",
            evidence=(f"the header of {empty[0]} lists no tensor",),
        )
