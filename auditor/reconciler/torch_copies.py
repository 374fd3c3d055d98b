"""A copy in torch files of the safetensors that are audited: where the two differ."""

from collections.abc import Iterator, Mapping

from auditor.checkpoint.filenames import variant_of
from auditor.checkpoint.model_folders import torch_model_files
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.weight_formats import Table
from auditor.errors import CheckpointError
from auditor.layouts import learned
from auditor.messages import listed, named
from auditor.reconciler.contents import Contents, table_findings
from auditor.reconciler.findings import CopyDiffers, Finding
from auditor.tensors import StoredTensor, natural_key


def torch_copy_findings(snapshot: Snapshot, found: Contents) -> Iterator[Finding]:
    """What torch files that were read say of themselves, and where they differ from the audited.

    A tensor that only they have is not a difference where it shares its bytes with one that both
    have, for safetensors stores those once, or where nothing of it is learned.
    """
    if not snapshot.torch_copies:
        return
    tables = [head.parsed for head in snapshot.torch_copies if isinstance(head.parsed, Table)]
    for table in tables:
        yield from table_findings(table)
    first = snapshot.torch_copies[0].name
    broken = [fault for head in snapshot.torch_copies if (fault := _fault(head.parsed))]
    if broken:
        yield CopyDiffers(
            file=first, reason=f"{broken[0]}; it is not compared with the audited set"
        )
    elif not (found.unread or found.names_only):
        yield from _differences(first, found, tables)


def uncompared_torch_copies(snapshot: Snapshot, found: Contents) -> tuple[str, ...]:
    """Torch files that were read, and could not be compared with audited files not all read."""
    lacking = found.unread or found.names_only
    return tuple(head.name for head in snapshot.torch_copies) if lacking else ()


def unread_torch_copies(snapshot: Snapshot) -> tuple[str, ...]:
    """Torch files that hold a copy of the audited safetensors, and that were not read."""
    name = next((head.name for head in snapshot.headers), "")
    if not name.endswith(".safetensors") or variant_of(name):
        return ()
    read = {head.name for head in snapshot.torch_copies}
    folder = name[: name.rfind("/") + 1]
    files = (file.name for file in snapshot.files)
    inside = torch_model_files(one.removeprefix(folder) for one in files if one.startswith(folder))
    return tuple(path for name in inside if (path := f"{folder}{name}") not in read)


def _fault(parsed: object) -> str | None:
    if isinstance(parsed, CheckpointError):
        return str(parsed)
    return parsed.broken if isinstance(parsed, Table) else None


def _differences(first: str, found: Contents, tables: list[Table]) -> Iterator[Finding]:
    audited = {tensor.name: tensor for tensor in found.tensors}
    other = {tensor.name: tensor for table in tables for tensor in table.tensors}
    shared = {name: of for table in tables for name, of in table.shared.items()}
    copies = {name for pair in shared.items() if audited.keys() & set(pair) for name in pair}
    copies |= {name for name, of in shared.items() if of in copies}
    lacks = [name for name in audited if name not in other]
    more = [
        name for name, one in other.items() if name not in audited.keys() | copies and learned(one)
    ]
    reshaped = [name for name, one in other.items() if _reshaped(one, audited)]
    for names, how in (
        (lacks, "lacks {} that the audited files have: {}"),
        (more, "has {} that the audited files lack: {}"),
        (reshaped, "has {} in another shape than the audited files: {}"),
    ):
        names.sort(key=natural_key)
        if names:
            count = f"{len(names):,} tensor{'s' if len(names) > 1 else ''}"
            reason = f"{named(first)} {how.format(count, listed(names))}"
            yield CopyDiffers(file=first, reason=reason, tensors=tuple(names))


def _reshaped(one: StoredTensor, audited: Mapping[str, StoredTensor]) -> bool:
    return one.name in audited and audited[one.name].shape != one.shape
