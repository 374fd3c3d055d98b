"""Which parser reads a weight file that is not a safetensors file; what parsers take and return.

A parser of a format whose parts lie apart (a zip's directory at the end, a table of unknown
length) is a pure function `parse(file, sparse)`. It reads with `sparse.read(span)`; where those
bytes are not here, NeedsBytes names them, the reader fetches them and calls again. A
snapshot keeps the same bytes, so that the same function reads it years later.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.errors import CheckpointError
from auditor.tensors import Span, StoredTensor


class NeedsBytes(Exception):  # noqa: N818 - no error: it asks for more
    """A parser cannot go on without the bytes of `span`."""

    def __init__(self, span: Span) -> None:
        super().__init__(f"bytes {span.start:,} to {span.stop:,} are needed")
        self.span = span


class FilePart(NamedTuple):
    """Bytes of a file from `start` on."""

    start: int
    data: bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.data)


class PartialFile(Struct, frozen=True):
    """Parts of a file, sorted, none touching another; and its whole size in bytes."""

    size: int
    parts: tuple[FilePart, ...]

    def read(self, span: Span) -> bytes:
        """Exactly the span's bytes; NeedsBytes where they are not here.

        Raises CheckpointError for a span that leaves the file.
        """
        if not 0 <= span.start <= span.stop <= self.size:
            raise CheckpointError(
                f"bytes {span.start:,} to {span.stop:,} are asked for, and it has {self.size:,}"
            )
        for start, data in self.parts:
            if start <= span.start and span.stop <= start + len(data):
                return data[span.start - start : span.stop - start]
        if span.start == span.stop:
            return b""
        raise NeedsBytes(span)


def merged_parts(parts: Iterable[FilePart]) -> tuple[FilePart, ...]:
    """The parts sorted, those that overlap or touch made one."""
    found: list[FilePart] = []
    for part in sorted(parts):
        if found and part.start <= found[-1].stop:
            last = found[-1]
            found[-1] = FilePart(last.start, last.data + part.data[last.stop - part.start :])
        else:
            found.append(part)
    return tuple(found)


# Endings in lower case -> the module of this package whose `parse(file, sparse)` reads such a
# file. Modules are imported when the first such file is met.
MODULES: Mapping[str, str] = MappingProxyType(
    {".bin": "torch_file", ".pt": "torch_file", ".pth": "torch_file", ".ckpt": "torch_file"}
    | {".gguf": "gguf"}
)


class TensorFault(NamedTuple):
    """Tensors that cannot be what the file says of them."""

    names: tuple[str, ...]
    reason: str  # a sentence that begins with the file


class Table(Struct, frozen=True, kw_only=True):
    """What one weight file declares; a format may add fields in a class of its own."""

    file: str  # path inside the repo, "/" between folders
    tensors: tuple[StoredTensor, ...]  # sorted by name
    size_faults: tuple[str, ...] = ()  # why the file cannot have the size it has
    faults: tuple[TensorFault, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader should know of how it was read, one line each
    # A tensor -> the one that is stored as the very same bytes, first in natural order.
    shared: Mapping[str, str] = MappingProxyType({})
    imports: tuple[str, ...] = ()  # what loading would import and call beyond its own, a line each
    broken: str | None = None  # why its tensors cannot be known, and yet it has `imports`


# The function `parse` that each module of MODULES has: the path of a file and the bytes at hand.
Parse = Callable[[str, PartialFile], Table]


def parser(file: str) -> Parse | None:
    """The parser of the file, by its ending; None: the file is read as safetensors.

    A parser reads from its PartialFile, passes on NeedsBytes, and raises CheckpointError for a file
    of another format.
    """
    module = MODULES.get(PurePosixPath(file).suffix.lower())
    if module is None:
        return None
    parse: Parse = import_module(f"auditor.containers.{module}").parse
    return parse
