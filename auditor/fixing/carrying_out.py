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
    finish_entries,
    read_journal,
    require_as_seen,
    write_journal,
)
from auditor.fixing.local_files import FileState
from auditor.fixing.plan import FileChange
from auditor.fixing.staging import require_space, stage_text, stage_weights, unchanged_file
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
            require_as_seen(folder, entries)
            write_journal(work, entries)
        except BaseException:
            discard_work(work)
            raise
        finish_entries(folder, work, entries)
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
            require_as_seen(folder, pending)
        except FixError:
            if pending == entries:  # nothing has taken its place yet
                discard_work(work)
            raise
        finish_entries(folder, work, entries)
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
    copies = [
        (folder / change.file, change.size)
        for change in changes
        if change.renames and not (in_place and _fits(change))
    ]
    if copies:
        require_space(work, copies)
    number = 0
    for change in changes:
        path, state = folder / change.file, seen.get(change.file)
        staged = work / str(number)
        number += 1
        if change.before is None or state is None:
            stage_text(staged, change.after)
            yield Entry(file=change.file, staged=staged.name, how="file", before=None)
        elif change.edits or not change.renames:
            with unchanged_file(path, state, change.before) as old:
                stage_text(staged, change.after, os.fstat(old))
            kept = _free_name(folder, change.file + _KEPT)
            yield Entry(file=change.file, staged=staged.name, how="file", before=state, kept=kept)
        elif in_place and _fits(change):
            with unchanged_file(path, state, change.before):
                kept = _free_name(folder, change.file + _KEPT_HEADER)
                stage_text(staged, change.before)
                yield Entry(file=kept, staged=staged.name, how="file", before=None)
                stage_text(work / str(number), change.after)
                yield Entry(
                    file=change.file, staged=str(number), how="header", before=state, kept=kept
                )
                number += 1
        else:
            stage_weights(path, state, change.before, change.after, staged)
            kept = _free_name(folder, change.file + _KEPT)
            yield Entry(file=change.file, staged=staged.name, how="file", before=state, kept=kept)


def _fits(change: FileChange) -> bool:
    return change.before is not None and len(change.before) == len(change.after)


def _free_name(folder: Path, name: str) -> str:
    """The name, or with a number behind it, that nothing has yet."""
    number, free = 0, name
    while os.path.lexists(folder / free):
        number += 1
        free = f"{name}.{number}"
    return free
