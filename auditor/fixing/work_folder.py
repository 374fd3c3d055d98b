"""The folder `FOLDER/.audit-fix/`, in which one run at a time stages new files and keeps a journal.

A run locks the folder (flock), and the system releases the lock when the run ends in any way. On
Windows, which has no flock, a file in the folder is the lock: a killed run leaves the file, and the
next run reports it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from auditor.downloader.folder_listing import FIX_FOLDER, FIX_JOURNAL
from auditor.errors import FixError
from auditor.messages import quoted

NEW_JOURNAL = f"{FIX_JOURNAL}.new"
_LOCK = "lock"


@contextmanager
def work_folder(folder: Path, *, exists: bool = False) -> Iterator[Path]:
    """Create or reuse the work folder and lock it; remove the folder at the end if it is empty."""
    work = folder / FIX_FOLDER
    if not exists:
        try:
            work.mkdir(mode=0o700)
        except FileExistsError:
            raise _is_busy(folder) from None
    try:
        if not stat.S_ISDIR(work.lstat().st_mode):
            raise FixError(f"{quoted(str(work))} is not a folder: remove it")
        with _locked(work):
            yield work
    finally:
        with suppress(OSError):  # a journal is in it
            work.rmdir()


def _is_busy(folder: Path) -> FixError:
    return FixError(f"another audit fix is at work in {quoted(str(folder))}")


def _locked(work: Path) -> AbstractContextManager[None]:
    try:
        import fcntl  # noqa: F401, PLC0415 - Windows has no such module
    except ImportError:
        return _locked_by_file(work)
    return _locked_by_system(work)


@contextmanager
def _locked_by_system(work: Path) -> Iterator[None]:
    from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 - likewise

    lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise _is_busy(work.parent) from None
        yield
    finally:
        os.close(lock)


@contextmanager
def _locked_by_file(work: Path) -> Iterator[None]:
    lock = work / _LOCK
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        raise FixError(
            f"{_is_busy(work.parent)}, or was killed there: if none is, remove {quoted(str(lock))} "
            f"and run it again"
        ) from None
    try:
        yield
    finally:
        try:
            lock.unlink(missing_ok=True)
        finally:  # a signal may interrupt the first one
            lock.unlink(missing_ok=True)


def discard_work(work: Path) -> None:
    """Remove the files of audit fix in the work folder, the journal first, then the empty folder.

    Raise FixError if the work folder contains other files.
    """
    names = {one.name for one in work.iterdir()} - {_LOCK}
    other = {name for name in names if not name.isdecimal()} - {FIX_JOURNAL, NEW_JOURNAL}
    if other:
        raise FixError(
            f"{quoted(str(work))} holds {quoted(min(other))}, which audit fix did not write: "
            f"remove it"
        )
    for name in sorted(names, reverse=True):  # letters before digits
        (work / name).unlink()
    with suppress(OSError):  # the lock is in it
        work.rmdir()


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk; do nothing on Windows, which cannot do it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
