"""The folder `FOLDER/.audit-fix/`, in which one run at a time stages new files and keeps a journal.

A run locks the folder. Without flock, on Windows, a file in it is the lock: a killed run leaves the
file, and the next run reports it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from auditor.downloader.local_folder import FIX_FOLDER, FIX_JOURNAL
from auditor.errors import FixError
from auditor.messages import quoted
from auditor.writing import locked

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
            raise _is_busy(folder, str(work)) from None
    try:
        if not stat.S_ISDIR(work.lstat().st_mode):
            raise FixError(f"{quoted(str(work))} is not a folder: remove it")
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(work, _LOCK))
            except BlockingIOError as error:
                raise _is_busy(folder, str(error.filename)) from None
            yield work
    finally:
        with suppress(OSError):  # a journal is in it
            work.rmdir()


def _is_busy(folder: Path, locked_path: str) -> FixError:
    killed = ", or was killed there: if none is, remove {} and run it again"
    detail = killed.format(quoted(locked_path)) if Path(locked_path).name == _LOCK else ""
    return FixError(f"another audit fix is at work in {quoted(str(folder))}{detail}")


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
