"""The sizes and the files that TensorFlow and Keras declare; no tensor in them is read.

An HDF5 file begins with its superblock: a signature, a version, the width of an address, and the
address of the file's end (format specification 3.0, II.A). A zip archive ends with its directory.
Variables of a SavedModel and of TensorFlow 1 are numbered files from 0 on, beside an index, which
is a table of LevelDB.
"""

import re

from auditor.containers.weight_formats import END, NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.tensors import Span

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_ZIP, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"
_LONGEST_COMMENT = 65_535
_SUPERBLOCK = 96
_INDEX_END = bytes.fromhex("57fb808b247547db")
_NUMBERED = re.compile(r"(.+\.data)-\d{5}-of-(\d{5})", re.DOTALL | re.ASCII)
_MOST_SHARDS = 10_000


def parse(file: str, sparse: PartialFile) -> Table | None:
    """Return the files that are needed, and a fault if the file is shorter than it declares."""
    if match := _NUMBERED.fullmatch(file):
        stem, count = match[1], min(int(match[2]), _MOST_SHARDS)
        numbered = (f"{stem}-{number:05d}-of-{match[2]}" for number in range(count))
        names = (f"{stem.removesuffix('.data')}.index", *numbered)
        return Table(file=file, tensors=(), needs=tuple(map(NeededFile, names)))
    if file.endswith(".index"):
        end = sparse.read(Span(max(0, sparse.size - 8), sparse.size))
        return Table(file=file, tensors=()) if end == _INDEX_END else None
    start = sparse.read(Span(0, min(sparse.size, _SUPERBLOCK)))
    least = _declared_end(start) if start.startswith(_SIGNATURE) else 0
    if sparse.size < least:
        fault = f"it has {sparse.size:,} bytes, and its header declares {least:,}"
    elif start.startswith(_ZIP) and not _has_directory(sparse):
        fault = f"it has {sparse.size:,} bytes, without the directory at a zip archive's end"
    else:
        return Table(file=file, tensors=())
    return Table(file=file, tensors=(), size_faults=(f"{named(file)} is truncated: {fault}",))


def _declared_end(start: bytes) -> int:
    """Return the address of the end of an HDF5 file, relative to its start."""
    if len(start) < _SUPERBLOCK // 2:
        return _SUPERBLOCK // 2
    version = start[8]
    width = start[9] if version >= 2 else start[13]  # noqa: PLR2004 - of the format
    first = {0: 24, 1: 28, 2: 12, 3: 12}.get(version)
    if first is None or width not in {2, 4, 8}:
        raise CheckpointError(f"its superblock has the version {version} and width {width}")
    return int.from_bytes(start[first + 2 * width : first + 3 * width], "little")


def _has_directory(sparse: PartialFile) -> bool:
    if _ZIP_END in sparse.read(Span(max(0, sparse.size - END), sparse.size)):
        return True
    return _ZIP_END in sparse.read(Span(max(0, sparse.size - END - _LONGEST_COMMENT), sparse.size))
