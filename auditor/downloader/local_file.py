"""Reads of regular files: never blocks on a FIFO or a device, and notices a file that changes."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from auditor.downloader.headers import Received
from auditor.errors import Reason, SourceError
from auditor.messages import quoted
from auditor.tensors import Span

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class RegularFile:
    """One open file, held to the size and the time of change that it had when it was opened."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path = path
        self._file = file
        self._before = os.fstat(file.fileno())
        if fault := _kind_fault(self._before):
            raise unreadable_file(path, fault)

    @property
    def size(self) -> int:
        return self._before.st_size

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def read(self, span: Span) -> Received:
        """The span's bytes; the span ends at the file's end where it would pass it."""
        self._file.seek(span.start)
        data = self._file.read(min(span.stop, self.size) - span.start)
        after = os.fstat(self._file.fileno())
        same = (after.st_size, after.st_mtime_ns) == (self.size, self._before.st_mtime_ns)
        if not same or len(data) != min(span.stop, self.size) - span.start:
            raise unreadable_file(self._path, "changed while it was read; try again")
        return Received(data, self.size)


@contextmanager
def open_regular_file(path: Path) -> Iterator[RegularFile]:
    """The file, open; raises SourceError where it is not a regular file that may be read."""
    try:
        if fault := _kind_fault(path.stat()):  # opening a device can have effects of its own
            raise unreadable_file(path, fault)
        with open(path, "rb", buffering=0, opener=_open) as file:
            yield RegularFile(path, file)
    except FileNotFoundError:
        raise unreadable_file(path, _absence(path)) from None
    except OSError as error:
        raise unreadable_file(path, f"cannot be read: {error.strerror or error}") from None


def read_all(path: Path, limit: int) -> bytes:
    """The whole file; raises SourceError where it has more than `limit` bytes."""
    with open_regular_file(path) as file:
        if file.size > limit:
            detail = f"{quoted(str(path))} has {file.size:,} bytes; {limit:,} are the most read"
            raise SourceError(Reason.TOO_LARGE, detail)
        return file.read(Span(0, file.size)).data


def unreadable_file(path: Path, fault: str) -> SourceError:
    return SourceError(Reason.UNREADABLE, f"{quoted(str(path))} {fault}")


def _open(path: str, flags: int) -> int:
    # Between the stat and the open a FIFO may have taken the file's place: without this flag
    # the open would wait for a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _kind_fault(status: os.stat_result) -> str | None:
    if stat.S_ISREG(status.st_mode):
        return None
    kind = next((kind for is_kind, kind in _KINDS if is_kind(status.st_mode)), "something else")
    return f"is {kind}, not a file"


def _absence(path: Path) -> str:
    return "is a link to nothing" if path.is_symlink() else "is not there"
