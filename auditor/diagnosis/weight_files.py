"""Stand-ins for weight files that are missing or unreadable."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from auditor.checkpoint.changes import as_indexed, holding, of_files, with_tensors
from auditor.checkpoint.snapshot import Snapshot, read_index
from auditor.containers.index import indexed_files
from auditor.diagnosis.case import Case, Undoing
from auditor.findings import Missing
from auditor.findings.evidence import OfFile
from auditor.tensors import StoredTensor

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def restored(case: Case, files: Collection[str]) -> Snapshot:
    """Return the checkpoint with these files complete: with the tensors that the index lists.

    Without an index, a file gets the expected tensors that its finding lists as hidden.
    """
    if read_index(case.snapshot) is not None:
        return as_indexed(case.snapshot, files)
    dtype = _dtype_of_weights(case)
    stand_ins = (
        holding(name, ((one.name, one.shape) for one in case.hidden.get(name, ())), dtype)
        for name in files
    )
    others = (head for head in case.snapshot.headers if head.name not in files)
    heads = sorted((*others, *stand_ins), key=lambda head: head.name)
    return replace(case.snapshot, headers=tuple(heads))


def as_proven(case: Case, undoing: Undoing, files: Collection[str]) -> Iterator[Undoing]:
    """Yield the undoing of broken files with the findings about them, and no other snapshot."""
    about = tuple(one for one in case.alarms if isinstance(one, OfFile) and one.file in files)
    if about:
        yield replace(undoing, snapshot=case.snapshot, proven=about)


def with_missing(case: Case, file: str = "another-file.safetensors") -> Snapshot:
    """Return the checkpoint with the missing tensors, in a file of their own if any was read."""
    findings = (one for one in case.report.findings if Missing.describes(one))
    missing = [(tensor.name, tensor.shape) for one in findings for tensor in one.tensors]
    if heads := case.snapshot.headers:
        added = holding(file, missing, _dtype_of_weights(case))
        return of_files(case.snapshot, (*heads, added))
    first = next(iter(indexed_files(read_index(case.snapshot))), "")
    names = (first, *(name for name, _ in missing))
    named = tuple(StoredTensor(name, None, None, None, "", None) for name in names)
    return with_tensors(case.snapshot, {first: named})


def _dtype_of_weights(case: Case) -> str:
    """Return the dtype of the first stored tensor, else the declared dtype, else F32."""
    stored = next((tensor.dtype for tensor in case.stored if tensor.dtype), None)
    declared = case.config.get("dtype") or case.config.get("torch_dtype")
    return stored or _DTYPES.get(declared if isinstance(declared, str) else "", "F32")
