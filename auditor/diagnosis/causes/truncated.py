"""truncated: a weight file is empty, ends within its header, or ends before its header declares.

To do: Upload the file again, and compare its size with that of the original.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.checkpoint.snapshot import WeightHeader
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER, Header
from auditor.containers.weight_formats import Table, parser
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.weight_files import restored
from auditor.errors import CheckpointError
from auditor.findings.evidence import OfFile
from auditor.messages import listed, named

CAUSE = "truncated"
_CUT = "truncated"  # in the errors of other formats' readers for a file that ends too soon


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint as if the files were complete; an incomplete header is replaced."""
    heads = {head.name: how for head in case.snapshot.headers if (how := _ends(head))}
    if not heads:
        return
    files = tuple(heads)
    about = (one for one in case.alarms if isinstance(one, OfFile) and one.file in heads)
    first = f"{named(files[0])} {heads[files[0]]}"
    proven = Undoing(
        cause=CAUSE,
        snapshot=case.snapshot,
        proven=tuple(about),
        summary=first if len(files) == 1 else f"{listed(files)} are cut off: {first}",
        fix=f"upload {listed(files)} again, and compare the sizes with those of the originals",
        evidence=tuple(f"{named(name)} {how}" for name, how in heads.items())[:3],
    )
    cut = (one for one in case.snapshot.headers if isinstance(one.parsed, CheckpointError))
    unread = {head.name for head in cut} & heads.keys()
    whole = restored(case, tuple(unread)) if unread else case.snapshot
    known = tuple(_of_any_size(one) if one.name in heads else one for one in whole.headers)
    yield proven.on(replace(whole, headers=known))
    if proven.proven:
        yield proven


def _of_any_size(head: WeightHeader) -> WeightHeader:
    table = head.parsed
    if isinstance(table, Table):
        return replace(head, size=None, known=replace(table, size_faults=()))
    return replace(head, size=None)


def _ends(head: WeightHeader) -> str | None:
    """Return a predicate, `ends after 8 of 90 bytes`, for a file that is cut; None if it is not."""
    table, size = head.parsed, head.size
    if head.pointed is not None or size is None:
        return None
    if size == 0:
        return "is empty"
    match table:
        case Header():
            whole = LENGTH_BYTES + table.header_length + table.data_length
            return f"ends after {size:,} of {whole:,} bytes" if size < whole else None
        case Table():
            return "ends too soon" if any(_CUT in fault for fault in table.size_faults) else None
        case CheckpointError() if parser(head.name) is not None:
            return f"ends too soon, after {size:,} bytes" if _CUT in str(table) else None
    return _ends_in_header(head.prefix, size)


def _ends_in_header(prefix: bytes, size: int) -> str | None:
    """Return such a predicate for a safetensors file that is cut within its header."""
    if size < LENGTH_BYTES:
        return f"ends after {size:,} bytes, before its header"
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    begins = prefix[LENGTH_BYTES:].lstrip()[:1] in {b"", b"{"}
    if not (begins and 1 < length <= MAX_HEADER and LENGTH_BYTES + length > size):
        return None
    return f"ends after {size:,} bytes, within its header of {length:,}"
