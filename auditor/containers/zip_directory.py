"""A zip archive's directory, and single entries of it; held to the file's bounds.

Stricter than most readers: what torch never writes and what two readers could read differently
(a name twice but for its case, entries that overlap, a local header that contradicts the
directory) is an error. So is an end that can be read in two ways: torch reads it with miniz, which
takes the last record that has room behind it whatever its comment's length, and follows a zip64
locator whether or not a field asks for it; other readers do neither.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.containers.weight_formats import PartialFile
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span

# Bytes of a directory and its entries. An entry of a torch file has some 70 bytes, more where the
# archive's name is long; so this is more than the 16,000 tensors
# that a pickle has room for (pickle_machine).
MAX_DIRECTORY = 4 * 1024 * 1024
MAX_ENTRIES = 40_000

STORED, DEFLATED = 0, 8  # compression methods; torch stores, other writers may deflate
_INFLATED = 1032  # bytes of one: deflate has two bits at least for 258 (RFC 1951)

_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_FIELD = struct.Struct("<HH")
_FULL32 = 0xFFFFFFFF  # "see the zip64 field"
_ZIP64 = 0x0001
_UTF8 = 0x800
# Encrypted, a patch of another file, strongly encrypted, a masked directory.
_ENCRYPTED = 0x1 | 0x20 | 0x40 | 0x2000
_FOLDER = (
    0x10  # an attribute of DOS; of such an entry torch's reader reads nothing, and says so not
)
_LONGEST_NAME = 511  # bytes; where torch lists names it cuts longer ones


class ZipEntry(NamedTuple):
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


class Archive(Struct, frozen=True, kw_only=True):
    """The directory of one archive."""

    file: str
    entries: Mapping[str, ZipEntry]  # in the order of the directory
    _places: Mapping[bytes, ZipEntry]  # by what the name is compared by

    def find(self, raw: bytes) -> ZipEntry | None:
        """The entry of that name, which is compared as torch does: without case, byte by byte."""
        return self._places.get(raw.lower())


def read_directory(file: str, sparse: PartialFile) -> Archive:
    """The entries of the archive that ends at the file's end; raises CheckpointError for a lie."""
    end = find_end(file, sparse)
    if end.length > MAX_DIRECTORY or end.entries > MAX_ENTRIES:
        size = f"{end.entries:,} entries in {end.length:,} bytes"
        most = f"{MAX_ENTRIES:,} in {MAX_DIRECTORY:,} are the most that are read"
        raise CheckpointError(f"{named(file)} has a zip directory of {size}; {most}")
    content = sparse.read(Span(end.start, end.start + end.length))
    found = _bounded(file, list(_entries(file, content, end)), end.start)
    places: dict[bytes, ZipEntry] = {}
    names: dict[str, ZipEntry] = {}
    for entry in found:
        if entry.name in names or entry.raw.lower() in places:
            raise CheckpointError(
                f"{named(file)}: its zip directory has {quoted(entry.name)} twice, as torch "
                f"compares names: upper and lower case are the same"
            )
        names[entry.name] = places[entry.raw.lower()] = entry
    return Archive(file=file, entries=MappingProxyType(names), _places=MappingProxyType(places))


def entry_content(archive: Archive, entry: ZipEntry, sparse: PartialFile, most: int) -> bytes:
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


def _entries(file: str, content: bytes, end: "End") -> Iterator[ZipEntry]:
    """The directory's entries, which must be as many as declared and fill it."""
    at = 0
    for _ in range(end.entries):
        if at + _CENTRAL.size > len(content) or content[at : at + 4] != b"PK\x01\x02":
            raise CheckpointError(
                f"{named(file)}: its zip directory breaks off at byte {end.start + at:,}, "
                f"before its {end.entries:,} entries are over"
            )
        entry, at = _entry(file, content, at)
        yield entry
    if at != len(content):
        raise CheckpointError(
            f"{named(file)}: the {end.entries:,} entries of its zip directory take {at:,} bytes, "
            f"and it declares {len(content):,}"
        )


def _entry(file: str, content: bytes, at: int) -> tuple[ZipEntry, int]:
    """One entry, and where the next begins."""
    fields = _CENTRAL.unpack_from(content, at)
    _, _, _, flags, method, _, _, _, packed, size, *lengths, disk, _, attributes, header = fields
    start = at + _CENTRAL.size
    ends = tuple(accumulate(lengths, initial=start))
    raw, extra = content[start : ends[1]], content[ends[1] : ends[2]]
    name = _name(file, raw, flags)
    where = f"{named(file)}: the zip entry {quoted(name)}"
    if ends[3] > len(content):
        raise CheckpointError(f"{where} reaches past the end of the directory")
    size, packed, header = _wide(where, extra, (size, packed, header))
    if flags & _ENCRYPTED or method not in {STORED, DEFLATED}:
        how = "encrypted, or a patch" if flags & _ENCRYPTED else f"packed by method {method}"
        raise CheckpointError(f"{where} is {how}")
    if disk or (attributes & _FOLDER and not name.endswith("/")):
        what = f"on disk {disk}" if disk else "a folder by its attributes and a file by its name"
        raise CheckpointError(f"{where} is {what}")
    if size != packed and (method == STORED or size > _INFLATED * packed):
        how = "stored as it is" if method == STORED else "deflated"
        raise CheckpointError(
            f"{where} is {how}, with {packed:,} bytes in the file and {size:,} outside it"
        )
    return ZipEntry(name, raw, header, method, packed, size, 0), ends[3]


def _name(file: str, raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437")
    except UnicodeDecodeError:
        raise CheckpointError(f"{named(file)}: a name in its zip directory is not UTF-8") from None
    if len(raw) > _LONGEST_NAME:
        raise CheckpointError(
            f"{named(file)}: its zip directory has {quoted(name)} of {len(raw):,} bytes; "
            f"{_LONGEST_NAME} are the most that torch compares"
        )
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts:
        raise CheckpointError(
            f"{named(file)}: its zip directory has {quoted(name)}, which leaves the archive"
        )
    return name


def _wide(where: str, extra: bytes, narrow: tuple[int, int, int]) -> tuple[int, int, int]:
    """Size, packed size and header offset; from the zip64 field where they need 64 bits."""
    if _FULL32 not in narrow:
        return narrow
    found: list[bytes] = []
    at = 0
    while at < len(extra):
        if at + _FIELD.size > len(extra):
            raise CheckpointError(f"{where} has extra fields that break off")
        kind, length = _FIELD.unpack_from(extra, at)
        at += _FIELD.size + length
        if at > len(extra):
            raise CheckpointError(f"{where} has extra fields that break off")
        if kind == _ZIP64:
            found.append(extra[at - length : at])
    if len(found) != 1 or len(found[0]) < 8 * narrow.count(_FULL32):
        raise CheckpointError(f"{where} lacks its 64-bit sizes, or has them twice")
    numbers = iter(struct.Struct(f"<{len(found[0]) // 8}Q").unpack_from(found[0]))
    size, packed, header = (next(numbers) if one == _FULL32 else one for one in narrow)
    return size, packed, header


def _bounded(file: str, entries: list[ZipEntry], directory_start: int) -> list[ZipEntry]:
    """The entries, in their order; none may reach into what follows it in the file."""
    ordered = sorted(range(len(entries)), key=lambda number: entries[number].header)
    found = entries[:]
    stop = directory_start
    for number in reversed(ordered):
        entry = entries[number]
        if entry.least + entry.packed > stop:
            raise CheckpointError(
                f"{named(file)}: the zip entry {quoted(entry.name)} overlaps what follows it: its "
                f"{entry.packed:,} bytes begin at byte {entry.least:,} at the earliest, and the "
                f"next begins at {stop:,}"
            )
        found[number] = entry._replace(stop=stop)
        stop = entry.header
    if stop and entries:
        raise CheckpointError(
            f"{named(file)}: its first zip entry begins at byte {stop:,}, and what is before it is "
            f"no entry"
        )
    return found


def _data_start(where: str, entry: ZipEntry, sparse: PartialFile) -> int:
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


# --- the records at the end -----------------------------------------------------------------------

_MARK, _MARK64, _MARK_LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_COMMENT = 0xFFFF  # bytes of the longest comment
_UNCOUNTED = 12  # bytes of the zip64 record that its own length leaves out: its mark and the length


class _Numbers(NamedTuple):
    """What both records say, the wide one in 64 bits."""

    disk: int
    first_disk: int
    here: int  # entries on this disk
    entries: int
    length: int  # bytes of the directory
    start: int


_FULL = _Numbers(0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)  # "see the zip64 record"


class End(NamedTuple):
    """Where the directory lies: it ends where the records begin."""

    entries: int
    length: int
    start: int


def find_end(file: str, sparse: PartialFile) -> End:
    """What the records at the end say; raises CheckpointError where two readers could differ."""
    at, record = _last(file, sparse)
    narrow = _Numbers(*_END.unpack(record)[1:7])
    numbers, stop = _with_zip64(file, sparse, narrow, at)
    if numbers.disk or numbers.first_disk or numbers.here != numbers.entries:
        raise CheckpointError(f"{named(file)} is one disk of a zip archive that has several")
    if numbers.start + numbers.length != stop:
        raise CheckpointError(
            f"{named(file)} has a lying zip directory: {numbers.entries:,} entries in "
            f"{numbers.length:,} bytes at byte {numbers.start:,}, which does not end where its end "
            f"record begins, at byte {stop:,}"
        )
    return End(numbers.entries, numbers.length, numbers.start)


def _last(file: str, sparse: PartialFile) -> tuple[int, bytes]:
    """Offset and bytes of the last record that has room behind it; its comment ends the file."""
    size = sparse.size
    start = max(0, size - _END.size - _LOCATOR.size - _END64.size)
    tail = sparse.read(Span(start, size))
    if not tail[-_END.size :].startswith(_MARK):
        start = max(0, size - _END.size - _COMMENT)
        tail = sparse.read(Span(start, size))
    at = tail.rfind(_MARK, 0, max(0, len(tail) - _END.size + len(_MARK)))
    if at < 0:
        raise CheckpointError(
            f"{named(file)} begins as a zip archive and does not end as one: it is truncated, or "
            f"something was written behind it (no end of a zip directory in its last "
            f"{len(tail):,} bytes)"
        )
    record = tail[at : at + _END.size]
    declared, found = _END.unpack(record)[-1], len(tail) - at - _END.size
    if declared != found:
        raise CheckpointError(
            f"{named(file)} begins as a zip archive and does not end as one: the end of its "
            f"directory declares a comment of {declared:,} bytes, and {found:,} follow it"
        )
    return start + at, record


def _with_zip64(file: str, sparse: PartialFile, narrow: _Numbers, at: int) -> tuple[_Numbers, int]:
    """The numbers, and where the first of the records begins that say them."""
    fault = CheckpointError(f"{named(file)} has a zip64 directory whose records contradict it")
    asked = any(one == full for one, full in zip(narrow, _FULL, strict=True))
    locator = sparse.read(Span(max(0, at - _LOCATOR.size), at))
    if not locator.startswith(_MARK_LOCATOR):
        if asked:
            raise fault
        return narrow, at
    if len(locator) < _LOCATOR.size:
        raise fault
    _, disk, place, disks = _LOCATOR.unpack(locator)
    stop = at - _LOCATOR.size
    if disk or disks != 1 or place + _END64.size > stop:
        raise fault
    mark, length, _, _, *fields = _END64.unpack(sparse.read(Span(place, place + _END64.size)))
    wide = _Numbers(*fields)
    agree = all(one in {of, full} for one, of, full in zip(narrow, wide, _FULL, strict=True))
    if mark != _MARK64 or place + _UNCOUNTED + length != stop or not agree:
        raise fault
    return wide, place
