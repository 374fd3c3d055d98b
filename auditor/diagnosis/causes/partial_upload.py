"""partial-upload: some shards are missing, as the index or the numbers of other shards show.

To do: Upload the absent files; without an index, upload the index too.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.checkpoint.changes import as_indexed, holding, of_files
from auditor.checkpoint.filenames import GGUF_ENDING
from auditor.checkpoint.selecting import INDEX, TORCH_INDEX
from auditor.checkpoint.shard_names import gaps, split_of
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.index import Index
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.weight_files import UNKNOWN, dtype_of_weights, read_index, splits
from auditor.findings import BadConfig, BadIndex, CopyDiffers, Missing
from auditor.messages import listed, named
from auditor.names import file_name, folder_of
from auditor.reconciler.contents import no_file_of

CAUSE = "partial-upload"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with its absent shards, whose tensors the index or findings name."""
    snapshot, index = case.snapshot, read_index(case.snapshot)
    for finding in case.alarms:
        if isinstance(finding, CopyDiffers):
            yield from _incomplete_copy(snapshot, finding)
    if any(head.name.lower().endswith(GGUF_ENDING) for head in snapshot.headers):
        yield from _of_gguf(case)
    elif index is not None and snapshot.unopened:
        yield _by_index(snapshot, index)
    elif index is not None or snapshot.index is None:
        yield from _by_numbers(case, index)


def _incomplete_copy(snapshot: Snapshot, finding: CopyDiffers) -> Iterator[Undoing]:
    """Yield the cause of a finding about a copy, if numbered files of the copy are absent."""
    split = split_of(finding.file)
    absent = split.absent({file.name for file in snapshot.files}) if split else ()
    if split and absent:
        count = split.total - len(absent)
        yield Undoing(
            cause=CAUSE,
            snapshot=snapshot,
            proven=(finding,),
            summary=f"{count:,} of the {split.total:,} files of a copy of the weights "
            f"{_are(count)} there: {listed(absent)} {_are(len(absent))} not",
            fix=f"upload {listed(absent)}, or delete the other files of that copy",
            evidence=(f"the files are numbered up to {split.total:,}",),
        )


def _of_gguf(case: Case) -> Iterator[Undoing]:
    """Yield the cause of missing tensors and wrong shard counts, if GGUF shards are absent."""
    files = {head.name for head in case.snapshot.headers}
    for split in splits(case):
        absent = split.absent(files)
        # Only the first file has the metadata of the model.
        kinds = BadIndex | Missing | (BadConfig if split.named(1) in absent else BadIndex)
        proven = (finding for finding in case.alarms if isinstance(finding, kinds))
        if absent:
            count = split.total - len(absent)
            yield Undoing(
                cause=CAUSE,
                snapshot=case.snapshot,
                proven=tuple(proven),
                summary=f"{count:,} of the {split.total:,} files {_are(count)} there: "
                f"{listed(absent)} {_are(len(absent))} not",
                fix=f"upload {listed(absent)}",
                evidence=(f"the files are numbered up to {split.total:,}",),
            )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _by_index(snapshot: Snapshot, index: Index) -> Undoing:
    """Return the undoing that adds the absent shards with the tensors that the index lists."""
    absent, shards = snapshot.unopened, _shards(index)
    heads = tuple(head for head in snapshot.headers if head.name in shards)
    instead = ""
    if len(absent) == len(shards):
        what = no_file_of(index)
        if snapshot.headers:
            others = listed([head.name for head in snapshot.headers])
            instead = f", or delete {index.file} to load {others}"
    else:
        of_index = f"of the {len(shards):,} files that {index.file} names"
        what = f"{len(absent):,} {of_index} {_are(len(absent))} not there"
    return Undoing(
        cause=CAUSE,
        snapshot=as_indexed(replace(snapshot, headers=heads), frozenset(absent)),
        summary=f"{what}: {listed(absent)}",
        # A folder or a cache may be an incomplete copy of a complete repository.
        fix=f"{'download or ' if snapshot.partial else ''}upload {listed(absent)}{instead}",
        evidence=("with what the index places in them nothing is missing",),
    )


def _by_numbers(case: Case, index: Index | None) -> Iterator[Undoing]:
    """Yield the snapshot with all numbered files and a complete index.

    The missing tensors are placed in the absent files. This also covers an incomplete export, whose
    index names only the existing files.
    """
    heads, heads_by_split = case.snapshot.headers, splits(case)
    files = [head.name for head in heads]
    split = next(iter(heads_by_split), None)
    if not heads or len(heads_by_split) > 1 or (split and len(heads_by_split[split]) < len(heads)):
        return
    if split is None and (len(heads) == 1 or len(case.shapes) < len(case.stored)):
        return  # the only file of a model, or copies of one model
    missing = (finding for finding in case.report.findings if isinstance(finding, Missing))
    lacking = [(one.name, one.shape) for finding in missing for one in finding.tensors]
    absent = split.absent(files) if split else gaps(files)
    if split and not absent:
        lacking = []  # the missing tensors cannot be in an absent file
    if index is not None and not (split and lacking and _shards(index) == set(files)):
        return
    if len(heads) == 1 and not lacking:
        return
    new_index = index.file if index else _index_name(files[0])
    if not lacking:
        what = f"the {len(heads):,} files are there, and their index is not"
    elif not absent:
        what = f"the {len(heads):,} files are there, without an index, and lack "
        what = f"{what}{len(lacking):,} tensors"
    else:
        count = f"{len(heads):,} of the {split.total:,} files" if split else "files with numbers"
        what = f"{count} {_are(len(heads))} there: {listed(absent)} {_are(len(absent))} not, and "
        it = "it" if len(absent) == 1 else "them"
        what += f"{named(index.file)} does not name {it}" if index else "neither is their index"
    unknown = "the absent files, and " if lacking and not absent else ""
    lost = holding(absent[0] if absent else UNKNOWN, lacking, dtype_of_weights(case))
    yield Undoing(
        cause=CAUSE,
        snapshot=of_files(case.snapshot, (*heads, lost) if lacking else heads),
        summary=what,
        fix=f"upload {unknown}{listed([*(absent if lacking else ()), new_index])}",
        evidence=(f"the files are numbered up to {split.total:,}",) if split else (),
    )


def _shards(index: Index) -> set[str]:
    """Return the paths, in the repository, of the files that the index names."""
    return {f"{folder_of(index.file)}{shard}" for shard in index.shards}


def _index_name(file: str) -> str:
    """Return the file name under which transformers or diffusers looks for the shards' index."""
    folder, last = folder_of(file), file_name(file)
    index = TORCH_INDEX if last.endswith(".bin") else INDEX
    if last.startswith("diffusion_"):
        index = f"diffusion_pytorch_model{index[index.index('.') :]}"
    return f"{folder}{index}"
