"""Stand-ins for weight files that are missing or unreadable, and the shards of each save."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from auditor.checkpoint.changes import as_indexed, holding, of_files, with_tensors
from auditor.checkpoint.shard_names import Split, split_of
from auditor.checkpoint.snapshot import Snapshot, WeightHeader
from auditor.containers.index import Index
from auditor.diagnosis.case import Case
from auditor.errors import CheckpointError
from auditor.findings import Missing
from auditor.tensors import StoredTensor

UNKNOWN = "another-file.safetensors"  # the stand-in for an absent file of unknown name

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def restored(case: Case, files: Collection[str]) -> Snapshot:
    """Return the checkpoint with these files complete: with the tensors that the index lists.

    Without an index, a file gets the expected tensors that its finding lists as hidden.
    """
    if read_index(case.snapshot) is not None:
        return as_indexed(case.snapshot, files)
    dtype = dtype_of_weights(case)
    stand_ins = tuple(
        holding(name, ((one.name, one.shape) for one in case.hidden.get(name, ())), dtype)
        for name in sorted(files)
    )
    others = (head for head in case.snapshot.headers if head.name not in files)
    heads = sorted((*others, *stand_ins), key=lambda head: head.name)
    return replace(case.snapshot, headers=tuple(heads))


def with_missing(case: Case) -> Snapshot:
    """Return the checkpoint with the missing tensors, in a file of their own if any was read."""
    missing = [
        (one.name, one.shape)
        for item in case.report.findings
        if isinstance(item, Missing)
        for one in item.tensors
    ]
    if heads := case.snapshot.headers:
        added = holding(UNKNOWN, missing, dtype_of_weights(case))
        return of_files(case.snapshot, (*heads, added))
    index = read_index(case.snapshot)
    first = next(iter(index.weight_map), "") if index else ""
    names = (first, *(name for name, _ in missing))
    named = tuple(StoredTensor(name, None, None, None, "", None) for name in names)
    return with_tensors(case.snapshot, {first: named})


def dtype_of_weights(case: Case) -> str:
    """Return the dtype of the first stored tensor, else the declared dtype, else F32."""
    stored = next((tensor.dtype for tensor in case.stored if tensor.dtype), None)
    declared = case.config.get("dtype") or case.config.get("torch_dtype")
    return stored or _DTYPES.get(declared if isinstance(declared, str) else "", "F32")


def read_index(snapshot: Snapshot) -> Index | None:
    """Return the parsed index; None if there is no readable index."""
    if snapshot.index is None:
        return None
    try:
        return snapshot.index.as_index
    except CheckpointError:
        return None


def splits(case: Case) -> Mapping[Split, tuple[WeightHeader, ...]]:
    """Return the shards with headers, grouped by the save that their file names show."""
    heads_by_split: dict[Split, list[WeightHeader]] = {}
    for head in case.snapshot.headers:
        if split := split_of(head.name):
            heads_by_split.setdefault(split, []).append(head)
    return {split: tuple(heads) for split, heads in heads_by_split.items()}
