"""Carries out a plan: stages the new files, writes the journal, lets them take their places.

A new weight file is written beside the old one, also where the new header has the old one's room:
writing over a header in place can be cut short in the middle of it, and then the file is neither
the old one nor the new one until the journal is read. `in_place` does it all the same, for who has
not the space: then the journal holds both headers, and the next run writes the new one whole.
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from auditor.downloader.local_folder import FIX_FOLDER, FIX_JOURNAL
from auditor.errors import FixError
from auditor.fixing.journal import (
    Entry,
    discard_work,
    read_journal,
    sync_folder,
    write_journal,
)
from auditor.fixing.local_files import FileState, current_state
from auditor.fixing.plan import FileChange
from auditor.fixing.staging import stage_text, stage_weights, unchanged_file
from auditor.messages import quoted

_KEPT, _KEPT_HEADER = ".orig", ".header.orig"


def is_interrupted(folder: Path) -> bool:
    """Whether an earlier run came as far as its journal and not to its end."""
    return os.path.lexists(folder / FIX_FOLDER / FIX_JOURNAL)


def carry_out(
    folder: Path,
    changes: tuple[FileChange, ...],
    seen: Mapping[str, FileState],
    *,
    in_place: bool = False,
) -> tuple[str, ...]:
    """Replace the files; the names under which the old ones stay. Raises FixError and OSError.

    `seen` is what the files were before they were audited. Whatever is raised before the journal
    stands, nothing has changed.
    """
    with _work_folder(folder) as work:
        try:
            entries = tuple(_staged(folder, work, changes, seen, in_place=in_place))
            _require_as_seen(folder, entries)
            write_journal(work, entries)
        except BaseException:
            discard_work(work)
            raise
        _finish_in_any_case(folder, work, entries)
    return tuple(entry.kept for entry in entries if entry.kept)


def finish_interrupted(folder: Path) -> bool:
    """Bring an earlier run to its end, or clear away what it staged; whether it was at its end."""
    if not os.path.lexists(folder / FIX_FOLDER):
        return False
    with _work_folder(folder, found=True) as work:
        entries = read_journal(work)
        if entries is None:
            discard_work(work)
            return False
        pending = tuple(one for one in entries if os.path.lexists(work / one.staged))
        try:
            _require_as_seen(folder, pending)
        except FixError:
            if pending == entries:  # nothing has taken its place yet
                discard_work(work)
            raise
        _finish_in_any_case(folder, work, entries)
        return True


@contextmanager
def _work_folder(folder: Path, *, found: bool = False) -> Iterator[Path]:
    """The folder for what is staged, while no other run has it; gone at the end if it is empty."""
    work = folder / FIX_FOLDER
    at_work = FixError(f"another audit fix is at work in {quoted(str(folder))}")
    if not found:
        try:
            work.mkdir(mode=0o700)
        except FileExistsError:
            raise at_work from None
    try:
        if not stat.S_ISDIR(work.lstat().st_mode):
            raise FixError(f"{quoted(str(work))} is not a folder: remove it")
        with _locked(work, at_work):
            yield work
    finally:
        with suppress(OSError):  # it is not empty: a journal is in it
            work.rmdir()


@contextmanager
def _locked(work: Path, otherwise: FixError) -> Iterator[None]:
    """The folder is this process's, until it ends, however it ends."""
    lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise otherwise from None
        yield
    finally:
        os.close(lock)


def _staged(
    folder: Path,
    work: Path,
    changes: tuple[FileChange, ...],
    seen: Mapping[str, FileState],
    *,
    in_place: bool,
) -> Iterator[Entry]:
    number = 0
    for change in changes:
        path, state = folder / change.file, seen.get(change.file)
        staged = work / str(number)
        number += 1
        if change.before is None or state is None:
            stage_text(staged, change.after, None)
            yield Entry(file=change.file, staged=staged.name, how="file", before=None)
        elif change.edits or not change.renames:
            with unchanged_file(path, state, change.before) as old:
                mode = stat.S_IMODE(os.fstat(old).st_mode)
                stage_text(staged, change.after, mode)
            kept = _free_name(folder, change.file + _KEPT)
            yield Entry(file=change.file, staged=staged.name, how="file", before=state, kept=kept)
        elif in_place and len(change.before) == len(change.after):
            with unchanged_file(path, state, change.before):
                kept = _free_name(folder, change.file + _KEPT_HEADER)
                stage_text(staged, change.before, None)
                yield Entry(file=kept, staged=staged.name, how="file", before=None)
                stage_text(work / str(number), change.after, None)
                yield Entry(
                    file=change.file, staged=str(number), how="header", before=state, kept=kept
                )
                number += 1
        else:
            stage_weights(path, state, change.before, change.after, staged)
            kept = _free_name(folder, change.file + _KEPT)
            yield Entry(file=change.file, staged=staged.name, how="file", before=state, kept=kept)


def _free_name(folder: Path, name: str) -> str:
    """The name, or with a number behind it, that nothing has yet."""
    number, free = 0, name
    while os.path.lexists(folder / free):
        number += 1
        free = f"{name}.{number}"
    return free


def _require_as_seen(folder: Path, entries: tuple[Entry, ...]) -> None:
    """Raises FixError where a file that is to be replaced is not the one that was audited."""
    for entry in entries:
        now, before = current_state(folder / entry.file), entry.before
        if entry.how == "header" and before and now and now.inode == before.inode:
            continue  # perhaps written to by the run that was interrupted: `_write_header` looks
        if (
            now is None
            and before is not None
            and entry.kept
            and os.path.lexists(folder / entry.kept)
        ):
            now = current_state(folder / entry.kept)
        same = now is None if before is None else before.is_same(now)
        if not same:
            raise FixError(
                f"{quoted(str(folder / entry.file))} has changed since it was audited, and is "
                f"left as it is: try again"
            )


def _finish_in_any_case(folder: Path, work: Path, entries: tuple[Entry, ...]) -> None:
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
    try:
        os.link(folder / entry.file, folder / entry.kept, follow_symlinks=False)
    except (OSError, NotImplementedError):  # FAT has no hard links
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
            raise FixError(f"{quoted(str(path))} has changed since it was audited")
        done = 0
        while done < len(new):
            done += os.pwrite(file, new[done:], done)
        os.fsync(file)
    finally:
        os.close(file)
    staged.unlink()
