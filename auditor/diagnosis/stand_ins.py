"""Weight files as they should be, for those that are not there or cannot be read."""

from collections.abc import Collection

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.index import Index
from auditor.diagnosis.case import Case
from auditor.diagnosis.changes import as_indexed, holding
from auditor.errors import CheckpointError

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def restored(case: Case, files: Collection[str]) -> Snapshot:
    """The checkpoint with these files whole: with what the index places in them.

    Without an index they have what is expected behind them.
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


def dtype_of_weights(case: Case) -> str:
    """Of the tensors that are there, or as the config declares it."""
    stored = next((tensor.dtype for tensor in case.stored if tensor.dtype), None)
    declared = case.config.get("dtype") or case.config.get("torch_dtype")
    return stored or _DTYPES.get(declared if isinstance(declared, str) else "", "F32")


def read_index(snapshot: Snapshot) -> Index | None:
    """What the index says; None: there is none that can be read."""
    if snapshot.index is None:
        return None
    try:
        return snapshot.index.as_index
    except CheckpointError:
        return None
