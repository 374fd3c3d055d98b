"""The reader of Core ML packages: the files in Manifest.json, and the numbers in weight.bin.

weight.bin begins with the number of its arrays and a version, in 64 bytes. Each array has 64 bytes
of metadata (0xDEADBEEF, a dtype, the length and the offset of its bytes) and, after its bytes, the
next one begins at a multiple of 64.
"""

from auditor.bounded.json_text import parse_object
from auditor.containers.index import shard_fault
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.names.parts import folder_of
from auditor.tensors import Span

_MOST = 1024 * 1024  # bytes of a manifest
_MARK = b"\xef\xbe\xad\xde"
_BLOCK = 64
_MOST_ARRAYS = 100_000


def parse(file: str, sparse: PartialFile) -> Table | None:
    """Return the files that a manifest names; or a fault of a weight.bin that ends too soon."""
    if file.lower().endswith(".json"):
        return _manifest(file, sparse)
    count = int.from_bytes(sparse.read(Span(0, 4)), "little")
    if count > _MOST_ARRAYS:
        raise CheckpointError(f"it has {count:,} arrays, expected at most {_MOST_ARRAYS:,}")
    at = _BLOCK
    for place in range(count):
        if at + _BLOCK > sparse.size:
            return _truncated(file, sparse, f"array {place + 1:,} of {count:,} begins at {at:,}")
        entry = sparse.read(Span(at, at + _BLOCK))
        length, offset = (int.from_bytes(entry[i : i + 8], "little") for i in (8, 16))
        if not entry.startswith(_MARK) or offset < at:
            raise CheckpointError(f"there is no array at byte {at:,}")
        if offset + length > sparse.size:
            where = f"array {place + 1:,} of {count:,} ends at byte {offset + length:,}"
            return _truncated(file, sparse, where)
        at = -(-(offset + length) // _BLOCK) * _BLOCK
    return Table(file=file, tensors=())


def _truncated(file: str, sparse: PartialFile, where: str) -> Table:
    fault = f"{named(file)} is truncated after {sparse.size:,} bytes: {where}"
    return Table(file=file, tensors=(), size_faults=(fault,))


def _manifest(file: str, sparse: PartialFile) -> Table | None:
    if sparse.size > _MOST:
        raise CheckpointError(f"it has {sparse.size:,} bytes, expected at most {_MOST:,}")
    entries = parse_object(sparse.read(Span(0, sparse.size)), file).get("itemInfoEntries")
    needs: list[NeededFile] = []
    for entry in entries.values() if isinstance(entries, dict) else ():
        match entry:
            case {"path": str(path)}:
                if fault := shard_fault(path):
                    raise CheckpointError(f"{named(file)} names {quoted(path)}, which {fault}")
                is_folder = entry.get("description") == "CoreML Model Weights"
                file_of = f"{path}/weight.bin" if is_folder else path
                needs.append(NeededFile(f"{folder_of(file)}Data/{file_of}"))
    return Table(file=file, tensors=(), needs=tuple(needs)) if needs else None
