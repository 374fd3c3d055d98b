"""A zip archive's directory, read from its end, and single entries; held to the file's bounds.

Stricter than most readers: what torch never writes and what two readers could read differently
(a name twice, entries that overlap, a local header that contradicts the directory) is an error.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from auditor.containers.sparse import Sparse
from auditor.containers.words import named, quoted
from auditor.errors import CheckpointError
from auditor.tensors import Span

# Bytes of a directory and its entries. An entry of a torch file has some 70 bytes, more where the
# archive's name is long; so this is more than the 16,000 tensors
# that a pickle has room for (pickle_machine).
MAX_DIRECTORY = 4 * 1024 * 1024
MAX_ENTRIES = 40_000

STORED, DEFLATED = 0, 8  # compression methods; torch stores, other writers may deflate

_END = Struct("<4sHHHHIIH")
_END64 = Struct("<4sQHHIIQQQQ")
_LOCATOR = Struct("<4sIQI")
_CENTRAL = Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = Struct("<4sHHHHHIIIHH")
_FIELD = Struct("<HH")
_COMMENT = 0xFFFF  # bytes of the longest comment
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF  # "see the zip64 record"
_ZIP64 = 0x0001
_ENCRYPTED = 0x1
_UTF8 = 0x800


class Entry(NamedTuple):
    """One entry as the directory has it."""

    name: str
    raw: bytes  # the name as the file has it
    header: int  # offset of its local header
    method: int
    packed: int  # bytes in the file
    size: int  # bytes unpacked
    stop: int  # where the next entry, or the directory, begins

    @property
    def least(self) -> int:
        """Where its data begins at the earliest: behind a local header without extra fields."""
        return self.header + _LOCAL.size + len(self.raw)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The directory of one archive."""

    file: str
    entries: Mapping[str, Entry]  # in the order of the file


class _End(NamedTuple):
    """The end of the central directory: where the directory lies."""

    entries: int
    length: int
    start: int
    at: int  # offset of the record itself, behind which nothing of the archive lies


def directory(file: str, sparse: Sparse) -> Archive:
    """The entries of the archive that ends at the file's end; raises CheckpointError for a lie."""
    end = _end(file, sparse)
    if end.length > MAX_DIRECTORY or end.entries > MAX_ENTRIES:
        size = f"{end.entries:,} entries in {end.length:,} bytes"
        most = f"{MAX_ENTRIES:,} in {MAX_DIRECTORY:,} are the most that are read"
        raise CheckpointError(f"{named(file)} has a zip directory of {size}; {most}")
    if end.start + end.length > end.at or end.entries * _CENTRAL.size > end.length:
        raise CheckpointError(
            f"{named(file)} has a lying zip directory: {end.entries:,} entries in {end.length:,} "
            f"bytes at byte {end.start:,}, and it ends at byte {end.at:,}"
        )
    content = sparse.read(Span(end.start, end.start + end.length))
    found = list(_entries(file, content, end))
    seen: set[str] = set()
    for entry in found:
        if entry.name in seen:
            raise CheckpointError(
                f"{named(file)}: its zip directory has {quoted(entry.name)} twice"
            )
        seen.add(entry.name)
    ordered = _bounded(file, found, end.start)
    return Archive(file=file, entries=MappingProxyType({entry.name: entry for entry in ordered}))


def content(archive: Archive, entry: Entry, sparse: Sparse, most: int) -> bytes:
    """The bytes of an entry, unpacked; raises CheckpointError where it has more than `most`."""
    where = f"{named(archive.file)}: the entry {quoted(entry.name)}"
    if max(entry.size, entry.packed) > most:
        size = max(entry.size, entry.packed)
        raise CheckpointError(f"{where} has {size:,} bytes; {most:,} are the most that are read")
    start = _data_start(where, entry, sparse)
    data = sparse.read(Span(start, start + entry.packed))
    if entry.method == STORED:
        return data
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(data, entry.size + 1)
    except zlib.error as error:
        raise CheckpointError(f"{where} cannot be unpacked: {error}") from None
    if len(unpacked) != entry.size or not unpacker.eof:
        given = "more" if len(unpacked) > entry.size else f"{len(unpacked):,}"
        raise CheckpointError(
            f"{where} unpacks to {given} bytes; its directory says {entry.size:,}"
        )
    return unpacked


def _end(file: str, sparse: Sparse) -> _End:
    """The last record of the archive, whose comment ends with the file."""
    size = sparse.size
    record = sparse.read(Span(max(0, size - _END.size), size))
    at = size - _END.size
    if not record.startswith(b"PK\x05\x06") or record[-2:] != b"\0\0":
        tail = Span(max(0, size - _END.size - _COMMENT), size)
        record, at = _commented(file, sparse.read(tail), tail.start)
    _, disk, first_disk, _, count, length, start, _ = _END.unpack(record[: _END.size])
    if _FULL16 in (disk, first_disk, count) or _FULL32 in (length, start):
        return _end64(file, sparse, at)
    if disk or first_disk:
        raise CheckpointError(f"{named(file)} is one disk of a zip archive that has several")
    return _End(count, length, start, at)


def _commented(file: str, tail: bytes, start: int) -> tuple[bytes, int]:
    """The last record and its offset, where a comment follows it."""
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        record = tail[at:]
        if len(record) >= _END.size and len(record) == _END.size + record[20] + 256 * record[21]:
            return record, start + at
        at = tail.rfind(b"PK\x05\x06", 0, at)
    raise CheckpointError(
        f"{named(file)} begins as a zip archive and does not end as one: it is truncated, or "
        f"something was written behind it (no end of a zip directory in its last "
        f"{len(tail):,} bytes)"
    )


def _end64(file: str, sparse: Sparse, at: int) -> _End:
    """The zip64 record that the locator before the last record points to."""
    fault = CheckpointError(f"{named(file)} has a zip64 directory whose records contradict it")
    if at < _LOCATOR.size:
        raise fault
    locator = sparse.read(Span(at - _LOCATOR.size, at))
    mark, _, place, _ = _LOCATOR.unpack(locator)
    if mark != b"PK\x06\x07" or place + _END64.size > at - _LOCATOR.size:
        raise fault
    record = sparse.read(Span(place, place + _END64.size))
    mark, _, _, _, disk, first_disk, _, count, length, start = _END64.unpack(record)
    if mark != b"PK\x06\x06" or disk or first_disk:
        raise fault
    return _End(count, length, start, place)


def _entries(file: str, content: bytes, end: _End) -> Iterator[Entry]:
    """The directory's entries, whose number must be the one declared."""
    at = 0
    for _ in range(end.entries):
        if at + _CENTRAL.size > len(content) or content[at : at + 4] != b"PK\x01\x02":
            raise CheckpointError(
                f"{named(file)}: its zip directory breaks off at byte {end.start + at:,}, "
                f"before its {end.entries:,} entries are over"
            )
        fields = _CENTRAL.unpack_from(content, at)
        _, _, _, flags, method, _, _, _, packed, size, *lengths = fields
        name_length, extra_length, comment_length, _, _, _, header = lengths
        start = at + _CENTRAL.size
        raw = content[start : start + name_length]
        name = _name(file, raw, flags)
        extra = content[start + name_length : start + name_length + extra_length]
        size, packed, header = _wide(file, name, extra, (size, packed, header))
        if flags & _ENCRYPTED or method not in {STORED, DEFLATED}:
            how = "encrypted" if flags & _ENCRYPTED else f"packed by method {method}"
            raise CheckpointError(f"{named(file)}: the zip entry {quoted(name)} is {how}")
        if method == STORED and size != packed:
            raise CheckpointError(
                f"{named(file)}: the zip entry {quoted(name)} is stored as it is, with {packed:,} "
                f"bytes in the file and {size:,} outside it"
            )
        yield Entry(name, raw, header, method, packed, size, 0)
        at = start + name_length + extra_length + comment_length


def _name(file: str, raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437")
    except UnicodeDecodeError:
        raise CheckpointError(f"{named(file)}: a name in its zip directory is not UTF-8") from None
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts:
        raise CheckpointError(
            f"{named(file)}: its zip directory has {quoted(name)}, which leaves the archive"
        )
    return name


def _wide(file: str, name: str, extra: bytes, narrow: tuple[int, int, int]) -> tuple[int, int, int]:
    """Size, packed size and header offset; from the zip64 field where they need 64 bits."""
    if _FULL32 not in narrow:
        return narrow
    at = 0
    while at + _FIELD.size <= len(extra):
        kind, length = (
            int.from_bytes(extra[at : at + 2], "little"),
            extra[at + 2] + 256 * extra[at + 3],
        )
        field = extra[at + _FIELD.size : at + _FIELD.size + length]
        if kind == _ZIP64 and len(field) >= 8 * narrow.count(_FULL32):
            numbers = iter(Struct(f"<{len(field) // 8}Q").unpack_from(field))
            size, packed, header = (next(numbers) if one == _FULL32 else one for one in narrow)
            return size, packed, header
        at += _FIELD.size + length
    raise CheckpointError(f"{named(file)}: the zip entry {quoted(name)} lacks its 64-bit sizes")


def _bounded(file: str, entries: list[Entry], directory_start: int) -> Iterator[Entry]:
    """The entries in the order of the file, none of which reaches into what follows it."""
    ordered = sorted(entries, key=lambda entry: entry.header)
    stops = (*(entry.header for entry in ordered), directory_start)[1:]
    for entry, stop in zip(ordered, stops, strict=True):
        if entry.least + entry.packed > stop:
            raise CheckpointError(
                f"{named(file)}: the zip entry {quoted(entry.name)} overlaps what follows it: its "
                f"{entry.packed:,} bytes begin at byte {entry.least:,} at the earliest, and the "
                f"next begins at {stop:,}"
            )
        yield entry._replace(stop=stop)


def _data_start(where: str, entry: Entry, sparse: Sparse) -> int:
    """Where an entry's data begins, by its local header, which must say what the directory does."""
    local = sparse.read(Span(entry.header, entry.header + _LOCAL.size))
    mark, _, flags, method, _, _, _, packed, size, name_length, extra_length = _LOCAL.unpack(local)
    start = entry.header + _LOCAL.size
    name = sparse.read(Span(start, start + name_length))
    streamed = flags & 0x8  # sizes follow the data
    sizes = {0, _FULL32} if streamed else {_FULL32}
    if (
        mark != b"PK\x03\x04"
        or name != entry.raw
        or method != entry.method
        or packed not in {entry.packed, *sizes}
        or size not in {entry.size, *sizes}
    ):
        raise CheckpointError(f"{where} is another in its own header than in the directory")
    start += int(name_length + extra_length)
    if start + entry.packed > entry.stop:
        raise CheckpointError(f"{where} reaches into what follows it")
    return start
