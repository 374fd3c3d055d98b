"""Some of the bytes of a file: parsers read spans of it, and NeedsBytes names what is missing.

A parser of a format whose parts lie apart (a zip's directory at the end, a table of unknown
length) is a pure function `parse(file, sparse)`. It reads with `sparse.read(span)`; where those
bytes are not here, NeedsBytes names them, the reader fetches them and calls again. A
snapshot keeps the same bytes, so that the same function reads it years later.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from auditor.errors import CheckpointError
from auditor.tensors import Span


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
