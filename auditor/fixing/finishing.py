"""What is staged takes its place. Each step can be done twice, so that any run can end it."""

import os
from contextlib import suppress
from pathlib import Path

from auditor.downloader.local_folder import FIX_FOLDER
from auditor.errors import FixError
from auditor.fixing.journal import Entry, discard_work, sync_folder
from auditor.fixing.local_files import current_state
from auditor.messages import quoted


def require_as_seen(folder: Path, entries: tuple[Entry, ...]) -> None:
    """Raises FixError where a file that is to be replaced is not the one that was audited."""
    for entry in entries:
        now, before = current_state(folder / entry.file), entry.before
        if entry.how == "header" and before and now and now.inode == before.inode:
            continue  # perhaps written to by the run that was interrupted: `_write_header` looks
        if now is None and before is not None and entry.kept:  # moved there, for want of links
            now = current_state(folder / entry.kept)
        same = now is None if before is None else before.is_same(now)
        if not same:
            raise FixError(
                f"{quoted(str(folder / entry.file))} has changed since it was audited, and is "
                f"left as it is: try again"
            )


def finish_entries(folder: Path, work: Path, entries: tuple[Entry, ...]) -> None:
    """Finish, and where a signal interrupts that, finish once more: it takes milliseconds."""
    try:
        _finish(folder, work, entries)
    except Exception:
        raise
    except BaseException:
        _finish(folder, work, entries)
        raise


def _finish(folder: Path, work: Path, entries: tuple[Entry, ...]) -> None:
    """Let what is staged take its place; what has done so already is not staged any more."""
    for entry in entries:
        staged = work / entry.staged
        if os.path.lexists(staged):
            if entry.how == "header":
                _write_header(folder, staged, entry)
            else:
                _keep(folder, entry)
                staged.replace(folder / entry.file)
    sync_folder(folder)
    if work.exists():
        discard_work(work)


def _keep(folder: Path, entry: Entry) -> None:
    """Give the old file its second name, while it has its first."""
    if entry.kept is None or os.path.lexists(folder / entry.kept):
        return
    if os.link in os.supports_follow_symlinks:
        with suppress(OSError):  # FAT has no hard links
            os.link(folder / entry.file, folder / entry.kept, follow_symlinks=False)
            return
    (folder / entry.file).replace(folder / entry.kept)


def _common(one: bytes, other: bytes) -> int:
    """How many bytes at the start are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _write_header(folder: Path, staged: Path, entry: Entry) -> None:
    """Write the new header over the old one, or over as much of both as an earlier run left."""
    path = folder / entry.file
    new, old = staged.read_bytes(), (folder / (entry.kept or "")).read_bytes()
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        now = os.pread(file, len(new), 0)
        begun = _common(now, new)
        before = entry.before
        same = before is not None and os.fstat(file).st_ino == before.inode
        if not same or len(old) != len(new) or now[begun:] != old[begun:]:
            raise FixError(
                f"{quoted(str(path))} has changed since it was audited: if it is as it should be, "
                f"remove {FIX_FOLDER}"
            )
        done = 0
        while done < len(new):
            done += os.pwrite(file, new[done:], done)
        os.fsync(file)
    finally:
        os.close(file)
    staged.unlink()
