"""The fields of a snapshot file's JSON, each checked for its type; bytes are deflated. Pure.

A file of a few kilobytes can unpack to gigabytes, so unpacking stops at the bounds that
`downloader/headers.py` and its neighbours set for reading a checkpoint.
"""

import base64
import binascii
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

from auditor.checkpoint.selecting import name_fault
from auditor.messages import described, listed

_HEX = re.compile(r"[0-9a-f]*")
_LARGEST = 2**64 - 1


def object_of(entry: object, what: str, *shapes: str) -> dict[str, object]:
    """Check that an entry is an object with exactly the keys of one of the shapes."""
    if not isinstance(entry, dict):
        raise SnapshotFaultError(f"{what}: expected an object, found {described(entry)}")
    if " ".join(sorted(entry)) not in shapes:
        keys = " or ".join(f"({shape})" for shape in shapes)
        raise SnapshotFaultError(f"{what}: expected the keys {keys}, found {listed(sorted(entry))}")
    return entry


def list_of(entry: object, what: str, *, twice: bool = False) -> Sequence[object]:
    """Check that an entry is a list sorted by names, without repeated ones unless `twice`."""
    if not isinstance(entry, list):
        raise SnapshotFaultError(f"{what}: expected a list, found {described(entry)}")
    names = [one.get("name") if isinstance(one, dict) else one for one in entry]
    texts = [name for name in names if isinstance(name, str)]
    if any(later < name or (later == name and not twice) for name, later in pairwise(texts)):
        raise SnapshotFaultError(f"{what}: its names are not sorted, or one is there twice")
    return entry


def string_of(entry: object, what: str) -> str:
    if not isinstance(entry, str):
        raise SnapshotFaultError(f"{what}: expected a string, found {described(entry)}")
    return entry


def flag_of(entry: object, what: str) -> bool:
    if not isinstance(entry, bool):
        raise SnapshotFaultError(f"{what}: expected true or false, found {described(entry)}")
    return entry


def name_of(entry: object) -> str:
    name = string_of(entry, "name")
    if fault := name_fault(name):
        raise SnapshotFaultError(fault)
    return name


def number_of(entry: object, what: str) -> int:
    if type(entry) is not int or not 0 <= entry <= _LARGEST:
        found = described(entry)
        raise SnapshotFaultError(f"{what}: expected a whole number below 2**64, found {found}")
    return entry


def size_of(entry: object) -> int | None:
    return None if entry is None else number_of(entry, "size")


def hex_digits_of(entry: object, what: str, digits: int) -> str | None:
    """Check that an entry is this number of hex digits, or null."""
    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) != digits or not _HEX.fullmatch(entry):
        raise SnapshotFaultError(f"{what}: expected {digits} hex digits, found {described(entry)}")
    return entry


_MIB = 1024 * 1024

# Bytes of one file: a safetensors header, the parts of a torch file or GGUF, a text.
MAX_HEADER, MAX_PARTS, MAX_TEXT = 12 * _MIB, 24 * _MIB, 32 * _MIB
MAX_TENSORS = 100_000  # in the header of one file
# Bytes and tensors of all headers of one model, and bytes of the rest: an index, a config.
MAX_HEADERS, MAX_ALL_TENSORS, MAX_OTHERS = 48 * _MIB, 250_000, 48 * _MIB

# zlib's level. DeepSeek-V3's headers and index, 20.4 MB, become 1.99 MB of base64 in 0.08 s; 1.80
# in 0.22 s at level 6, and 1.77 in 0.30 at level 9.
_LEVEL = 3
_PIECE = 1 * _MIB  # bytes that are unpacked at a time to count them
# Above this size, a file that unpacks to a hundred times its size is not a snapshot, whose headers
# are deflated already.
_SURE, _RATIO = 32 * _MIB, 100
GZIP = b"\x1f\x8b"
_TENSOR = b'"data_offsets"'  # no name contains it unescaped


class SnapshotFaultError(Exception):
    """A fault of a snapshot file, in words."""


class BoundedTotal:
    """The most that a snapshot may contain of one kind, and the sum so far."""

    def __init__(self, has: str, unit: str, most: int) -> None:
        self._has, self._unit, self._most = has, unit, most
        self._sum = 0

    def add(self, count: int) -> None:
        self._sum += count
        require(self._has, self._sum, self._unit, self._most)


def require(has: str, count: int, unit: str, most: int) -> None:
    """Raise SnapshotFaultError if the count is above the bound."""
    if count > most:
        raise SnapshotFaultError(f"{has} {count:,} {unit}; {most:,} are the most that are read")


def packed(content: bytes) -> str:
    """Deflate bytes into text, which `unpacked` reads."""
    return base64.b64encode(zlib.compress(content, _LEVEL)).decode()


def unpacked(text: str, what: str, most: int, total: BoundedTotal) -> bytes:
    """Inflate the text of `packed`; its bytes are counted before they take memory."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SnapshotFaultError(f"{what}: its base64 is broken ({error})") from None
    size = _unpacked_size(content, what, most)
    total.add(size)
    return zlib.decompress(content, bufsize=max(size, 1))


def plain(content: bytes, what: str, most: int, total: BoundedTotal) -> bytes:
    """Check that bytes which the file contains unpacked are within the bounds."""
    require(f"{what}: it has", len(content), "bytes", most)
    total.add(len(content))
    return content


def unzipped(content: bytes, most: int) -> bytes:
    """Return the content of a file, which may be gzipped."""
    if not content.startswith(GZIP):
        return content
    most = min(most, max(_SURE, _RATIO * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            whole = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SnapshotFaultError(f"its gzip is broken ({error})") from None
    if len(whole) > most:
        raise SnapshotFaultError(f"it unpacks to more than {most:,} bytes")
    return whole


def tensors_in(header: bytes) -> int:
    """Return an upper bound of the number of tensors in a safetensors header."""
    return header.count(_TENSOR)


def _unpacked_size(content: bytes, what: str, most: int) -> int:
    unpacking = zlib.decompressobj()
    size = 0
    try:
        while not unpacking.eof:
            piece = len(unpacking.decompress(content, _PIECE))
            if not piece and not unpacking.eof:
                raise SnapshotFaultError(f"{what}: its deflated bytes are cut off")
            size += piece
            if size > most:
                raise SnapshotFaultError(f"{what}: it unpacks to more than {most:,} bytes")
            content = unpacking.unconsumed_tail
    except zlib.error as error:
        raise SnapshotFaultError(f"{what}: its deflated bytes are broken ({error})") from None
    if unpacking.unused_data:
        raise SnapshotFaultError(f"{what}: its deflated bytes continue after their end")
    return size
