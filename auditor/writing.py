"""Output files: complete or not at all, and through no link that a checkout may contain; locks.

Whatever lies at a file's path, a link, a hard link or a pipe, is replaced by the new file. A path
that leads through a link is refused.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import BinaryIO

from auditor.messages import quoted

# Names of the files that this process has open; the system shows them as links.
_OPEN_FILE = re.compile(r"/(?:dev|proc/self)/(stdout|stderr|fd/\d+)", re.ASCII)
_STANDARD = {"stdout": 1, "stderr": 2}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically; raise OSError if that fails, leaving the old file unchanged."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` at the end of the block; raise OSError on failure.

    On failure (a full disk, no permission), the old file stays unchanged.
    """
    if path.is_dir() and not path.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # a parent of the path is not a folder
        message = os.strerror(errno.ENOTDIR)
        raise NotADirectoryError(errno.ENOTDIR, message, str(path.parent)) from None
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    with temporary.open("xb") as file:  # fails if the name exists, also as a link
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            file.close()
            temporary.replace(path)
        except BaseException:
            file.close()
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that the user named, as `replacing` does; raise OSError if that is refused.

    A device, an open file of this process (/dev/stdout), and a pipe that is being read are written
    to instead.
    """
    stream = _stream(path)
    if stream is None:
        require_no_link(path, itself=False)
    with replacing(path) if stream is None else os.fdopen(stream, "wb") as file:
        yield file


def _stream(path: Path) -> int | None:
    """Return a descriptor of a path that is not a place for a file; None for other paths."""
    if is_open := _OPEN_FILE.fullmatch(os.path.abspath(path)):  # noqa: PTH100 - as written
        name = is_open[1]
        return os.dup(_STANDARD.get(name) or int(name.removeprefix("fd/")))
    try:
        own, mode = path.lstat().st_mode, path.stat().st_mode
    except OSError:
        return None
    if stat.S_ISBLK(own) or stat.S_ISCHR(mode):
        return os.open(path, os.O_WRONLY)
    if stat.S_ISFIFO(own):
        with suppress(OSError):  # no process reads it
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            os.set_blocking(pipe, True)
            return pipe
    return None


def require_no_link(path: Path, *, itself: bool = True) -> None:
    """Raise OSError if an output's path is a link, or leads through a link that may be prepared.

    That is any link below the current folder, which may be a checkout, unless it is the root; a
    link on the way to the current folder, or elsewhere, is the user's own. With `itself` false,
    `path` may be a link.
    """
    with suppress(FileNotFoundError):  # the current folder was removed, so it contains no link
        here = Path.cwd()
        for part in path.parents if here.parent != here else ():
            if part.is_symlink() and part.parent.resolve().is_relative_to(here):
                raise _link_error(part)
    if itself and path.is_symlink():
        raise _link_error(path)


def _link_error(path: Path) -> OSError:
    target = quoted(os.fspath(path.readlink()))
    detail = f"{quoted(str(path))} is a link to {target}; name the path that it leads to"
    return OSError(errno.ELOOP, detail, str(path))


# --- locks ----------------------------------------------------------------------------------------

_LOCK_PAUSE = 0.02  # seconds between two attempts


@contextmanager
def locked(folder: Path, name: str, *, patience: float = 0) -> Iterator[None]:
    """Lock a folder during the block; raise BlockingIOError if it is locked for `patience` seconds.

    The system releases the lock (flock) when the process ends in any way. Windows and some network
    file systems have no flock: there a file of this name is the lock, and a killed process leaves
    it. The error's `filename` is the folder or that file.
    """
    until = monotonic() + patience
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(_locked(folder, folder / name))
                break
            except BlockingIOError:
                if monotonic() >= until:
                    raise
                sleep(_LOCK_PAUSE)
        yield


def _locked(folder: Path, file: Path) -> AbstractContextManager[None]:
    try:
        import fcntl  # noqa: F401, PLC0415 - Windows has no such module
    except ImportError:
        return _locked_by_file(file)
    return _locked_by_system(folder, file)


@contextmanager
def _locked_by_system(folder: Path, file: Path) -> Iterator[None]:
    from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 - likewise

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with ExitStack() as stack:
        stack.callback(os.close, handle)
        try:
            flock(handle, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            detail = "another process is writing to it; try again"
            raise BlockingIOError(errno.EAGAIN, detail, str(folder)) from None
        except OSError:  # NFS locks only what is open for writing
            stack.enter_context(_locked_by_file(file))
        yield


@contextmanager
def _locked_by_file(file: Path) -> Iterator[None]:
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        detail = "another process is writing, or was killed; if none is at work, remove this file"
        raise BlockingIOError(errno.EAGAIN, detail, str(file)) from None
    try:
        yield
    finally:
        try:
            file.unlink()
        except BaseException:  # a signal; without one, another process may have the lock by now
            file.unlink(missing_ok=True)
            raise
