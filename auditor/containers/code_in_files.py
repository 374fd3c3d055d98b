"""The reader of any file: whether loading it may run code, by its first bytes and not by its name.

Pickles are followed wherever they lie: bare, in numpy's arrays of objects, compressed as joblib
writes them, in zip and tar archives. The config of a Keras model is searched for code. A file that
may contain code and was not followed to its end raises UnfollowedError.
"""

import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from auditor.bounded.json_text import parse_object
from auditor.bounded.pickle_machine import MAX_PICKLE, follow_pickle
from auditor.containers import torch_file
from auditor.containers.weight_formats import (
    END,
    PICKLED,
    START,
    FilePart,
    NeedsBytes,
    PartialFile,
    Table,
    UnfollowedError,
    UnsafeFileError,
    not_followed,
)
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.names import file_name
from auditor.tensors import Span

_FIRST = 64 * 1024  # bytes of the next read, doubled until they suffice
_MOST_MEMBERS = 1_000  # of an archive
_DEEPEST = 3  # archives inside of each other
# Weights alone: transformers' TensorFlow classes read them, and no Keras model is built of them.
_WEIGHTS_ALONE = re.compile(r"(tf_model(-\d+-of-\d+)?|model\.weights)\.h5", re.ASCII)
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)


def parse(file: str, sparse: PartialFile, depth: int = 0) -> Table:
    """Return the tensors of a torch file; raise CheckpointError for any other file.

    The error is UnsafeFileError if loading the file may run code, and UnfollowedError if the file
    may contain code that was not looked at.
    """
    start = sparse.read(Span(0, min(sparse.size, START)))
    if file.endswith(".distcp"):
        raise UnfollowedError(f"{named(file)} has parts that are unpickled when they are loaded")
    if start.startswith(b"\x89HDF\r\n\x1a\n") and not _WEIGHTS_ALONE.fullmatch(file_name(file)):
        raise UnfollowedError(
            f"{named(file)} is an HDF5 file, in which a Keras model may have code"
        )
    if start.startswith(b"\x93NUMPY"):
        return _numpy_array(file, sparse)
    if compression := next((one for one in _COMPRESSIONS if start.startswith(one.start)), None):
        return _compressed(file, sparse, compression, depth)
    is_zip = start.startswith((b"PK\x03\x04", b"PK\x05\x06"))
    if is_zip or (not depth and _ends_as_zip(sparse)):
        return _archive(file, sparse, depth, _zip_members)
    by_name = file.lower().endswith(PICKLED)
    if torch_file.is_tar(start) and not by_name:
        return _archive(file, sparse, depth, _tar_members)
    if by_name or _may_import(sparse, 0):
        return torch_file.parse(file, sparse)
    raise CheckpointError(f"{named(file)} runs no code")


def _ends_as_zip(sparse: PartialFile) -> bool:
    end = sparse.read(Span(max(0, sparse.size - END), sparse.size))
    return end.startswith(b"PK\x05\x06")


def _may_import(sparse: PartialFile, at: int) -> bool:
    """Whether an unpickler that begins at byte `at` may import something that exists."""
    opcodes = torch_file.opcodes_at(sparse, at)
    is_marked = at < sparse.size and sparse.read(Span(at, at + 1)) == b"\x80"
    if not opcodes.names or is_marked or opcodes.is_cut or opcodes.is_standard:
        return bool(opcodes.names)
    if not opcodes.is_credible:
        return False
    pickle = follow_pickle(sparse.read(Span(at, min(sparse.size, at + MAX_PICKLE))))
    return pickle.is_calling or pickle.fault is None or pickle.fault.may_go_on


def _numpy_array(file: str, sparse: PartialFile) -> Table:
    """Follow the pickle of an array of objects; raise CheckpointError for an array of numbers."""
    prefix = sparse.read(Span(0, min(sparse.size, 12)))
    width = 2 if prefix[6:7] == b"\x01" else 4
    start = 8 + width + int.from_bytes(prefix[8 : 8 + width], "little")
    if start > min(sparse.size, _FIRST):
        raise CheckpointError(f"{named(file)} is a NumPy array with a broken header")
    header = sparse.read(Span(8 + width, start))
    # Only the header of an array of objects has one of these: the keys and numbers do not.
    if not any(sign in header for sign in (b"O", b"obj", b"\\")) or not _may_import(sparse, start):
        raise CheckpointError(f"{named(file)} is a NumPy array of plain values")
    data = sparse.read(Span(0, min(sparse.size, start + MAX_PICKLE)))
    pickle = follow_pickle(data, start)
    if pickle.outside:
        raise UnsafeFileError(f"{named(file)} is a NumPy array of objects", pickle.outside)
    if pickle.fault and (pickle.fault.may_go_on or len(data) < sparse.size):
        raise not_followed(file, f"is a NumPy array of objects that {pickle.fault.reason}")
    raise CheckpointError(f"{named(file)} is a NumPy array of plain objects")


# --- compressed files ---------------------------------------------------------------------------


class _Compression(NamedTuple):
    """A compression that joblib and pandas read, by its first bytes."""

    start: bytes
    unpacker: Callable[[], Any] | None  # None: the standard library cannot unpack it


def _zlib_unpacker() -> Any:
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # zlib's own form, or gzip's


# The memory of an unpacker: xz needs 9 MiB at its default level, and 65 at its highest.
_lzma_unpacker = partial(lzma.LZMADecompressor, memlimit=24 * 1024 * 1024)
_COMPRESSIONS = (
    _Compression(b"\x1f\x8b", _zlib_unpacker),
    *(_Compression(bytes((0x78, level)), _zlib_unpacker) for level in (0x01, 0x5E, 0x9C, 0xDA)),
    _Compression(b"BZh", BZ2Decompressor),
    _Compression(b"\xfd7zXZ", _lzma_unpacker),
    _Compression(b"]\x00\x00", _lzma_unpacker),
    _Compression(b"\x04\x22M\x18", None),  # lz4
    _Compression(b"\x28\xb5\x2f\xfd", None),  # zstandard
)
_CHUNK = 4096


def _compressed(file: str, sparse: PartialFile, kind: _Compression, depth: int) -> Table:
    """Read what a compressed file contains: its start, and all of it if that may run code."""
    unfollowed = UnfollowedError(f"{named(file)} is compressed, and was not unpacked to its end")
    if kind.unpacker is None or depth >= _DEEPEST:
        raise unfollowed
    start = _unpacked(kind.unpacker, sparse.read(Span(0, min(sparse.size, _FIRST))), START)
    if not start and kind.unpacker is _zlib_unpacker:
        raise CheckpointError(f"{named(file)} is not compressed")
    if not start:
        raise unfollowed
    try:
        return parse(file, PartialFile(2**62, (FilePart(0, start),)), depth + 1)
    except NeedsBytes:
        packed = sparse.read(Span(0, min(sparse.size, MAX_PICKLE)))
    content = _unpacked(kind.unpacker, packed, MAX_PICKLE + 1)
    is_complete = len(content) <= MAX_PICKLE and len(packed) == sparse.size
    size = len(content) if is_complete else 2**62
    try:
        return parse(file, PartialFile(size, (FilePart(0, content),)), depth + 1)
    except NeedsBytes:
        raise unfollowed from None


def _unpacked(new_unpacker: Callable[[], Any], packed: bytes, most: int) -> bytes:
    """Return up to `most` bytes of what is packed: all streams, up to the first that is broken."""
    content, unpacker = b"", None
    waiting = [packed[at : at + _CHUNK] for at in reversed(range(0, len(packed), _CHUNK))]
    try:
        while waiting and len(content) < most:
            unpacker = unpacker or new_unpacker()
            content += unpacker.decompress(waiting.pop(), most - len(content))
            if unpacker.eof:
                waiting += [unpacker.unused_data] if unpacker.unused_data else []
                unpacker = None
    except _BROKEN:
        pass
    return content


# --- archives -------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int
    read: Callable[[int], bytes]  # returns its first bytes, up to a number


class _View:
    """A partly read file as zipfile and tarfile read files."""

    def __init__(self, sparse: PartialFile) -> None:
        self._sparse = sparse
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._sparse.size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def read(self, length: int = -1) -> bytes:
        rest = max(0, self._sparse.size - self._at)
        length = rest if length < 0 else min(length, rest)
        data = self._sparse.read(Span(self._at, self._at + length)) if length else b""
        self._at += length
        return data


def _zip_members(view: Any) -> Iterator[_Member]:
    archive = zipfile.ZipFile(view)

    def read(info: zipfile.ZipInfo, length: int) -> bytes:
        with archive.open(info) as member:
            return member.read(length)

    for info in archive.infolist():
        yield _Member(info.filename, info.file_size, partial(read, info))


def _tar_members(view: Any) -> Iterator[_Member]:
    archive = tarfile.open(fileobj=view, mode="r:")  # noqa: SIM115 - the view has no file to close

    def read(info: tarfile.TarInfo, length: int) -> bytes:
        member = archive.extractfile(info)
        return member.read(length) if member else b""

    for info in archive:
        if info.isfile():
            yield _Member(info.name, info.size, partial(read, info))


def _archive(
    file: str, sparse: PartialFile, depth: int, members: Callable[[Any], Iterator[_Member]]
) -> Table:
    """Look at each member of an archive; torch's archives are read as such."""
    if depth >= _DEEPEST:
        raise UnfollowedError(f"{named(file)} is an archive, and was not looked into")
    if members is _zip_members and file.lower().endswith(PICKLED):
        return torch_file.parse(file, sparse)
    doubt: UnfollowedError | None = None
    try:
        for count, member in enumerate(members(_View(sparse))):
            if count >= _MOST_MEMBERS:
                raise UnfollowedError(f"{named(file)} has more than {_MOST_MEMBERS:,} members")
            if members is _zip_members and member.name.endswith(_OF_TORCH):
                return torch_file.parse(file, sparse)
            try:
                _look_into(f"{file}/{member.name}", member, depth)
            except UnfollowedError as error:
                doubt = doubt or error
    except _BROKEN as error:
        raise UnfollowedError(f"{named(file)} is an archive that cannot be read: {error}") from None
    raise doubt or CheckpointError(f"{named(file)} is an archive without code")


_OF_TORCH = ("data.pkl", "constants.pkl")


def _look_into(label: str, member: _Member, depth: int) -> None:
    """Raise UnsafeFileError or UnfollowedError if a member of an archive runs code or may."""
    if member.name.endswith(".py"):
        raise UnfollowedError(f"{named(label)} is Python code")
    if file_name(member.name) == "config.json":
        _require_no_keras_code(label, member.read(MAX_PICKLE))
    length = START
    while length <= MAX_PICKLE:
        data = member.read(length)
        try:
            table = parse(label, PartialFile(member.size, (FilePart(0, data),)), depth + 1)
        except NeedsBytes as needs:
            length = max(2 * length, needs.span.stop)
        except (UnsafeFileError, UnfollowedError):
            raise
        except CheckpointError:
            return
        else:
            if table.imports:
                raise UnsafeFileError(named(label), table.imports)
            return
    raise UnfollowedError(f"{named(label)} is too long to be followed")


# --- Keras ----------------------------------------------------------------------------------------

# Classes with a pickled function or module in their config; and the modules of the others.
_KERAS_CODE = frozenset({"Lambda", "__lambda__", "TorchModuleWrapper"})
_KERAS = frozenset({"builtins", "keras", "keras_cv", "keras_hub", "keras_nlp", "tensorflow"})


def _require_no_keras_code(label: str, content: bytes) -> None:
    """Raise UnsafeFileError if the config of a Keras model has code or imports other modules."""
    try:
        waiting: list[object] = [parse_object(content, label)]
    except CheckpointError as error:
        raise UnfollowedError(str(error)) from None
    imports: dict[str, None] = {}
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kind, module = value.get("class_name"), value.get("module")
            is_other = isinstance(module, str) and module.partition(".")[0] not in _KERAS
            if isinstance(kind, str) and (kind in _KERAS_CODE or is_other):
                imports[named(f"{module}.{kind}" if is_other else kind)] = None
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)
    if imports:
        raise UnsafeFileError(f"{named(label)} is the config of a Keras model", tuple(imports))
