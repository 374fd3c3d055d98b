"""The reader of torch.save's zip archives: `data.pkl`, and an entry `data/KEY` for each storage.

This module reads the zip directory with zipfile, torch with miniz. An archive is accepted only if
both must read it alike: its only end record ends the file, the directory ends where the end record
begins, all entries are in one folder and contiguous from byte 0 on, and no two names differ only in
case. An entry that torch.save does not write, such as TorchScript's program, is an error.
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from auditor.bounded.pickle_machine import MAX_PICKLE
from auditor.containers.torch_tensors import Storage, StoragePlaces
from auditor.containers.weight_formats import PartialFile, UnsafeFileError, not_followed
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span

# Bytes of a directory. An entry takes 70 to 120, enough for more tensors than a pickle has.
MAX_DIRECTORY = 4 * 1024 * 1024

_MARK, _MARK64, _MARK_LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL, _CENTRAL_LENGTHS = 46, 28  # bytes of an entry, and bytes before its field lengths
_LENGTHS = struct.Struct("<3H")  # the lengths of its name, extra fields and comment
_FIELD = struct.Struct("<2H")
_COMMENT = 0xFFFF  # bytes of the longest comment
_U16_MAX, _U32_MAX = 0xFFFF, 0xFFFFFFFF
_END64_LENGTH = 44  # bytes of the zip64 record after its length field
_ZIP64 = 1  # the extra field with 64-bit sizes
_UTF8 = 0x800
_FOLDER = 0x10  # DOS attribute; torch reads such an entry as empty
_ENCRYPTED = 0x1 | 0x20 | 0x40 | 0x2000
_INFLATED = 1032  # bytes that one byte can inflate to: deflate has two bits at least for 258
_ALIGNED = 64  # bytes; torch's writer begins the data of an entry at a multiple of it

_DATA, _CONSTANTS = "data.pkl", "/constants.pkl"
_VERSIONS = ("version", ".data/version")  # torch requires one of them
_WRITTEN = re.compile(
    r"data\.pkl|byteorder|version|\.format_version|\.storage_alignment|(\.data/)?"
    r"|\.data/(version|serialization_id)|data/[\w.-]*",
    re.ASCII,
)


class _Entry(NamedTuple):
    """An entry of the archive, as the zip directory declares it."""

    name: str
    width: int  # length of the name in bytes
    header: int  # offset of its local header
    is_deflated: bool
    packed: int  # bytes in the file
    size: int  # bytes unpacked

    @property
    def least(self) -> int:
        """The smallest possible offset of the entry's data: its local header has no extra field."""
        return self.header + _LOCAL.size + self.width


class TorchArchive(Struct, frozen=True, kw_only=True):
    """The directory of an archive that torch.save may have written."""

    file: str
    entries: Mapping[str, _Entry]  # by name relative to the folder, in lower case
    stops: Mapping[int, int]  # offset of an entry's local header -> the entry's end, at the latest

    def pickle(self, sparse: PartialFile) -> bytes:
        """Return the bytes of data.pkl."""
        entry = self.entries[_DATA]
        if max(entry.size, entry.packed) > MAX_PICKLE:
            size = max(entry.size, entry.packed)
            raise self._not_followed(f"has a pickle of {size:,} bytes, at most {MAX_PICKLE:,}")
        start = self._data_start(entry, sparse)
        data = sparse.read(Span(start, start + entry.packed))
        if not entry.is_deflated:
            return data
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = unpacker.decompress(data, entry.size + 1)
        except zlib.error as error:
            raise self._not_followed(f"has a pickle that cannot be inflated: {error}") from None
        if len(data) != entry.size or not unpacker.eof:
            reason = f"has a pickle that does not inflate to the declared {entry.size:,} bytes"
            raise self._not_followed(reason)
        return data

    def places(self, storages: Mapping[str, Storage]) -> StoragePlaces:
        """Return the positions of the storages, and the faults of those with a wrong size."""
        spans: dict[str, Span] = {}
        faults: dict[str, str] = {}
        for key, storage in storages.items():
            entry = self.entries.get(f"data/{key.lower()}")
            if entry is None:
                faults[key] = f"its storage {quoted(key)} is not in the archive"
                continue
            if entry.size != storage.length:
                faults[key] = (
                    f"its storage {quoted(key)} has {entry.size:,} bytes in the archive, expected "
                    f"{storage.length:,}"
                )
            start = self._aligned_start(entry)
            spans[key] = Span(start, start + storage.length)
        return StoragePlaces(spans, faults)

    def _data_start(self, entry: _Entry, sparse: PartialFile) -> int:
        """Return the offset at which an entry's data begins, by its local header."""
        local = sparse.read(Span(entry.header, entry.header + _LOCAL.size))
        mark, _, _, method, *_, width, extra = _LOCAL.unpack(local)
        start = entry.header + _LOCAL.size
        name = sparse.read(Span(start, start + entry.width)).lower()
        start += int(width + extra)
        if (
            mark != b"PK\x03\x04"
            or width != entry.width
            or method != (zipfile.ZIP_DEFLATED if entry.is_deflated else zipfile.ZIP_STORED)
            or not name.endswith(_DATA.encode())
            or start + entry.packed > self.stops[entry.header]
        ):
            raise self._not_followed("has a local header of data.pkl that is not the directory's")
        return start

    def _aligned_start(self, entry: _Entry) -> int:
        """Return the offset at which torch's writer begins an entry's data, by the directory alone.

        The data begin at a multiple of 64, after a padding field and 64-bit sizes, if any. To read
        local headers would take a request for each storage.
        """
        large, far = entry.packed >= _U32_MAX, entry.header >= _U32_MAX
        wide = _FIELD.size + 16 * large + 8 * far if large or far else 0
        start = -(-(entry.least + _FIELD.size + wide) // _ALIGNED) * _ALIGNED
        return start if start + entry.packed <= self.stops[entry.header] else entry.least

    def _not_followed(self, reason: str) -> UnsafeFileError:
        return not_followed(self.file, reason)


def open_archive(file: str, sparse: PartialFile) -> TorchArchive:
    """Read the directory; raise UnsafeFileError if torch may read the file differently.

    Raise CheckpointError if torch cannot open the file as an archive.
    """
    start, length, count = _directory(file, sparse)
    if length > MAX_DIRECTORY:
        raise not_followed(
            file, f"has a zip directory of {length:,} bytes, at most {MAX_DIRECTORY:,}"
        )
    try:
        entries = list(_entries(sparse.read(Span(start, start + length))))
    # zipfile raises NotImplementedError for an archive of a later version of the format.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise not_followed(file, f"has a zip directory that cannot be read: {error}") from None
    if len(entries) != count:
        reason = f"has {len(entries):,} entries in its zip directory, expected {count:,}"
        raise not_followed(file, reason)
    names = _names_below_folder(file, entries)
    if not any(version in names for version in _VERSIONS):
        raise CheckpointError(f"{named(file)} has no entry 'version', which torch needs to open it")
    return TorchArchive(file=file, entries=names, stops=_stops(file, entries, start))


def _directory(file: str, sparse: PartialFile) -> tuple[int, int, int]:
    """Return the start and the length of the zip directory, and the number of its entries."""
    size = sparse.size
    at = max(0, size - _END.size - _LOCATOR.size - _END64.size)
    tail = sparse.read(Span(at, size))
    if not (tail[-_END.size :].startswith(_MARK) and tail.endswith(bytes(2))):
        tail = sparse.read(Span(max(0, size - _END.size - _COMMENT), size))
        if tail.find(_MARK, 0, len(tail) - _END.size + len(_MARK)) >= 0:
            raise not_followed(file, "has bytes behind the end of its zip directory")
        raise CheckpointError(
            f"{named(file)} begins as a zip archive and does not end as one: it is truncated, or "
            f"has bytes behind its end"
        )
    _, disk, first, local, count, length, start, _ = _END.unpack(tail[-_END.size :])
    stop = size - _END.size
    locator = tail[-_END.size - _LOCATOR.size : -_END.size]
    if locator.startswith(_MARK_LOCATOR):
        stop -= _LOCATOR.size + _END64.size
        record = tail[: _END64.size]
        mark, width, _, _, disk, first, local, count, length, start = _END64.unpack(record)
        located = (mark, width, *_LOCATOR.unpack(locator)[1:])
        is_sound = located == (_MARK64, _END64_LENGTH, 0, stop, 1)
    else:
        is_sound = _U16_MAX not in {local, count} and _U32_MAX not in {length, start}
    if not is_sound or disk or first or local != count or start + length != stop:
        raise not_followed(file, "has a zip directory that its end record contradicts")
    return start, length, count


def _entries(directory: bytes) -> Iterator[_Entry]:
    """Yield the entries of a directory, read by zipfile; raise BadZipFile for unusual ones."""
    at = 0
    while at < len(directory):
        at += _CENTRAL + sum(_LENGTHS.unpack_from(directory, at + _CENTRAL_LENGTHS))
    if at != len(directory):
        raise zipfile.BadZipFile("an entry reaches past its end")
    count = directory.count(b"PK\x01\x02") & _U16_MAX  # zipfile does not use it
    end = _END.pack(_MARK, 0, 0, count, count, len(directory), 0, 0)
    for info in zipfile.ZipFile(BytesIO(directory + end)).infolist():
        name, packed, size = info.orig_filename, info.compress_size, info.file_size
        is_deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if (
            info.volume
            or info.flag_bits & _ENCRYPTED
            or not (is_deflated or info.compress_type == 0)
        ):
            raise zipfile.BadZipFile(f"{quoted(name)} is encrypted or packed in an unusual way")
        if info.external_attr & _FOLDER and not name.endswith("/"):
            raise zipfile.BadZipFile(f"{quoted(name)} is a folder by its attributes")
        if size != packed and (not is_deflated or size > _INFLATED * packed):
            raise zipfile.BadZipFile(f"{quoted(name)} has {packed:,} bytes for {size:,}")
        if name.endswith(_DATA) and _ZIP64 in _field_kinds(info.extra):
            raise zipfile.BadZipFile(f"{quoted(name)} has 64-bit sizes")
        width = len(name.encode("utf-8" if info.flag_bits & _UTF8 else "cp437"))
        yield _Entry(name, width, info.header_offset, is_deflated, packed, size)


def _field_kinds(extra: bytes) -> Iterator[int]:
    at = 0
    while at + _FIELD.size <= len(extra):
        kind, length = _FIELD.unpack_from(extra, at)
        yield kind
        at += _FIELD.size + length


def _names_below_folder(file: str, entries: list[_Entry]) -> dict[str, _Entry]:
    """Return the entries by name relative to the archive's only folder, in lower case."""
    if any(entry.name.lower().endswith(_CONSTANTS) for entry in entries):
        raise not_followed(file, "is a TorchScript archive, a program with its tensors")
    folder = entries[0].name.partition("/")[0] + "/" if entries else "/"
    names: dict[str, _Entry] = {}
    for entry in entries:
        name = entry.name.removeprefix(folder).lower()
        if not entry.name.startswith(folder) or not _WRITTEN.fullmatch(name):
            raise not_followed(file, f"has {quoted(entry.name)}, which torch.save does not write")
        if name in names:
            raise not_followed(file, f"has two entries {quoted(entry.name)}, compared without case")
        names[name] = entry
    if _DATA not in names:
        raise not_followed(file, f"is a zip archive without {_DATA}: torch.save did not write it")
    return names


def _stops(file: str, entries: list[_Entry], directory_start: int) -> dict[int, int]:
    """Return the latest possible end of each entry; raise UnsafeFileError if two overlap."""
    starts = sorted([*(entry.header for entry in entries), directory_start])
    stops = dict(pairwise(starts))
    if starts[0] != 0 or len(set(starts)) < len(starts) or starts[-1] != directory_start:
        raise not_followed(file, "has a zip directory whose entries are not in a row from byte 0")
    for entry in entries:
        if entry.least + entry.packed > stops[entry.header]:
            raise not_followed(file, f"has {quoted(entry.name)}, which overlaps what follows it")
    return stops
