"""The interface of parsers of weight files other than safetensors, and a table of them.

A parser of a format whose parts are scattered (a zip's directory at the end, a table of unknown
length) is a pure function `parse(file, sparse)`. It reads with `sparse.read(span)`. If bytes are
missing, NeedsBytes names them, the reader fetches them and calls the parser again. A snapshot keeps
the same bytes, so that the same function reads it years later.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span, StoredTensor


class NeedsBytes(Exception):  # noqa: N818 - not an error: the parser needs more
    """The exception by which a parser requests the bytes of `span`."""

    def __init__(self, span: Span) -> None:
        super().__init__(f"bytes {span.start:,} to {span.stop:,} are needed")
        self.span = span


class UnsafeFileError(CheckpointError):
    """An error for a file whose loading may run code; its tensors are not known."""

    def __init__(self, message: str, imports: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.imports = imports  # a line for each imported name that is in no list of known names


class UnfollowedError(CheckpointError):
    """An error for a file that may contain code and was not looked at completely."""

    def __init__(self, message: str, table: "Table | None" = None) -> None:
        super().__init__(message)
        self.table = table  # what is known of a file of a recognised format


def not_followed(file: str, reason: str, imports: tuple[str, ...] = ()) -> UnsafeFileError:
    """Return the error for a file that may run code and could not be parsed to its end.

    `reason` completes "it ...", so it begins with a verb.
    """
    return UnsafeFileError(f"{named(file)} may run code: not followed, it {reason}", imports)


class FilePart(NamedTuple):
    """A part of a file: its bytes from `start` on."""

    start: int
    data: bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.data)


class PartialFile(Struct, frozen=True):
    """The parts of a file that were read, sorted, with gaps between them, and its size."""

    size: int
    parts: tuple[FilePart, ...]

    def read(self, span: Span) -> bytes:
        """Return the span's bytes; raise NeedsBytes if some are not in the parts.

        Raise CheckpointError if the span leaves the file.
        """
        if not 0 <= span.start <= span.stop <= self.size:
            raise CheckpointError(
                f"bytes {span.start:,} to {span.stop:,} are outside of its {self.size:,} bytes"
            )
        place = bisect_right(self.parts, span.start, key=lambda part: part.start)
        if place:
            part = self.parts[place - 1]
            if span.stop <= part.stop:
                return part.data[span.start - part.start : span.stop - part.start]
        if span.start == span.stop:
            return b""
        raise NeedsBytes(span)


def merged_parts(parts: Iterable[FilePart]) -> tuple[FilePart, ...]:
    """Sort the parts and join those that overlap or touch."""
    merged: list[FilePart] = []
    for part in sorted(parts):
        if merged and part.start <= merged[-1].stop:
            last = merged[-1]
            merged[-1] = FilePart(last.start, last.data + part.data[last.stop - part.start :])
        else:
            merged.append(part)
    return tuple(merged)


# The file of a distributed checkpoint of torch that describes its tensors, and the files beside it.
METADATA, PART = ".metadata", ".distcp"

# Endings of weight files, in lower case -> the module of this package whose `parse(file, sparse)`
# reads such a file. A module is imported for the first such file.
MODULES: Mapping[str, str] = MappingProxyType(
    {".bin": "torch_file", ".pt": "torch_file", ".pth": "torch_file", ".ckpt": "torch_file"}
    | {".gguf": "gguf", METADATA: "dcp", PART: "dcp"}
)
# Files that each rank of a training writes: DeepSpeed, verl.
_RANK_FILE = re.compile(
    r"(^|[/_])mp_rank_\d\d_(model|optim)_states\.pt$|(^|/)model_world_size_\d{1,5}_rank_\d{1,5}\.pt$"
)
# Endings of files that take a read for each tensor, so that only files on this machine are read.
_NEAR_MODULES = {".msgpack": "flax"}
# Endings of other pickles, which do not contain weights that an audit counts.
PICKLES = (".pkl", ".pickle", ".joblib")
# Endings of all files that torch.load or pickle reads.
PICKLED = (*PICKLES, *(ending for ending, module in MODULES.items() if module == "torch_file"))


# Bytes at both ends of a file that show its format, whatever its name: the header of a tar archive,
# and the record that ends a zip archive.
START, END = 512, 22


# Endings of other files that may have code, by which files of the Hub are named as not read.
_MAY_HAVE_CODE = (
    *(".dill", ".sav", ".p", ".pk", ".th", ".pt2", ".ptl", ".pdparams", ".pdopt", ".metadata"),
    *(".npy", ".npz", ".keras", ".h5", ".hdf5", ".nemo", ".mar", ".model", ".distcp"),
)
_COMPRESSED = (".gz", ".bz2", ".xz", ".lzma", ".zst", ".lz4", ".z", ".zip", ".tar", ".tgz")
# Files with such an ending that are not loaded by a format that has code.
_WITHOUT_CODE = re.compile(
    r"(.*/)?(tf_model[\w.-]*\.h5|([\w.-]*(tokenizer|sentencepiece|spiece|spm|bpe|vocab)[\w.-]*)\.model)",
    re.ASCII | re.IGNORECASE,
)


def may_have_code(name: str) -> bool:
    """Return whether a file may run code when it is loaded, by its name alone."""
    name = name.lower()
    bare = name
    for ending in _COMPRESSED:
        bare = bare.removesuffix(ending)
    is_packed_pickle = bare != name and bare.endswith((*PICKLED, *_MAY_HAVE_CODE))
    endings = (*PICKLED, *_MAY_HAVE_CODE)
    return (name.endswith(endings) or is_packed_pickle) and not _WITHOUT_CODE.fullmatch(name)


class TensorFault(NamedTuple):
    """Tensors that contradict the file; if `names` is empty, the file cannot be loaded at all."""

    names: tuple[str, ...]
    reason: str  # a sentence that begins with the file


class NeededFile(NamedTuple):
    """A file that another file declares and that loading needs."""

    path: str  # inside the repo; a folder ends with "/"
    least: int = 0  # the bytes that it has at least
    instead: str = ""  # a file that may be there in its place


class Table(Struct, frozen=True, kw_only=True):
    """The tensors that one weight file declares; a format may add fields in its own class."""

    file: str  # path inside the repo, "/" between folders
    tensors: tuple[StoredTensor, ...]  # sorted by name
    size_faults: tuple[str, ...] = ()  # why the file's size is impossible
    faults: tuple[TensorFault, ...] = ()
    notes: tuple[str, ...] = ()  # how the file was read, one line each
    # A tensor -> the first tensor, in natural order, that is stored as the same bytes.
    shared: Mapping[str, str] = MappingProxyType({})
    imports: tuple[str, ...] = ()  # a line for each imported name that is in no list of known names
    needs: tuple[NeededFile, ...] = ()  # files beside it, of a recognised format
    to_do: str = ""  # what joins it with them; it unpickles them


# The function `parse` of each module of MODULES: takes the path of a file and the bytes at hand.
Parse = Callable[[str, PartialFile], Table]


def parser(file: str) -> Parse | None:
    """Return the parser for the file's ending; None for a safetensors file.

    A parser reads from a PartialFile, raises NeedsBytes if bytes are missing, and CheckpointError
    for a file of another format.
    """
    path = PurePosixPath(file)
    module = MODULES.get(path.name) or {**MODULES, **_NEAR_MODULES}.get(path.suffix.lower())
    if path.suffix.lower() in PICKLES:
        module = "torch_file"
    elif _RANK_FILE.search(file):
        module = "rank_files"
    if module is None:
        return None
    return parse_of(module)


def parser_by_content() -> Parse:
    """Return the parser of any file, which looks for code in it."""
    return parse_of("code_in_files")


def parse_of(module: str) -> Parse:
    """Return the function `parse` of a module of this package, which is imported."""
    parse: Parse = import_module(f"auditor.containers.{module}").parse
    return parse


# The signatures of public formats; the order matters only if one is a prefix of another.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version ", "a Git LFS pointer: the real file was never fetched or never pushed"),
    (b"PK\x03\x04", "a zip archive, as torch.save and numpy.savez write"),
    (b"\x80\x02", "a Python pickle, as older versions of torch.save write"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"GGUF", "a GGUF file"),
    (b"ggml", "a GGML file"),
    (b"lmgg", "a GGML file"),
    (b"tjgg", "a GGML file"),
    (b"fmgg", "a GGML file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstandard archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"<<<<<<< ", "a git merge conflict"),
    (b"\xef\xbb\xbf", "text with a byte order mark"),
)
_LEAST, _LOOKED_AT = 4, 256  # bytes of a text: shorter ones prove nothing
_LINE = 80  # most characters of the line that is quoted
ANSWER = "perhaps an answer of a server, saved as a file"


def format_by_magic(prefix: bytes) -> str | None:
    """Return the format's name, such as `a Python pickle`; None if it is unknown."""
    for signature, name in _SIGNATURES:
        if prefix.startswith(signature):
            return name
    start = prefix.lstrip()
    if start.startswith((b"{", b"[")) and (b'"dtype"' in prefix or b'"__metadata__"' in prefix):
        return "bare JSON, without the eight bytes of length that come first"
    line = _first_line(prefix)
    if line is None:
        return None
    is_page = start[:9].lower().startswith((b"<!doctype", b"<html", b"<?xml"))
    is_json = start.startswith((b"{", b"["))
    kind = "an HTML or XML page:" if is_page else "JSON:" if is_json else "plain text,"
    return f"{kind} {ANSWER} ({quoted(line)})"


def _first_line(prefix: bytes) -> str | None:
    """Return the first line of a text that is not empty; None for bytes that are not a text."""
    start = prefix[:_LOOKED_AT]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:  # else the last character is cut off
            return None
        text = start[: error.start].decode()
    if len(text) < _LEAST or not all(one.isprintable() or one in "\t\r\n\x1b" for one in text):
        return None
    return next((line[:_LINE] for line in text.split("\n") if line.strip()), "").strip()
