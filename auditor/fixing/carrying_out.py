"""Carry out a plan: stage the new files, write the journal, put the new files in their places.

To stage a file is to write its new version into the work folder. A new weight file is staged even
if the new header fits into the space of the old one: a write over the header can be interrupted,
and then the file is neither the old nor the new one until the next run. With `in_place` the header
is nevertheless overwritten, for users without space for a copy: the work folder contains both
headers, and after an interruption the next run writes the new one.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path

from auditor.checkpoint.snapshot import FileState
from auditor.downloader.folder_listing import FIX_FOLDER, FIX_JOURNAL
from auditor.errors import FixError
from auditor.fixing.journal import (
    RECORD,
    Entry,
    Journal,
    finish_entries,
    is_pending,
    read_journal,
    read_record,
    record_entry,
    require_as_seen,
    write_journal,
)
from auditor.fixing.local_files import journal_state, written
from auditor.fixing.plan import FileChange
from auditor.fixing.staging import require_space, stage_header, stage_replacement, stage_text
from auditor.fixing.work_folder import discard_work, work_folder

_KEPT, _KEPT_HEADER = ".orig", ".header.orig"


def is_interrupted(folder: Path) -> bool:
    """Whether an earlier run wrote its journal and did not finish."""
    return os.path.lexists(folder / FIX_FOLDER / FIX_JOURNAL)


def carry_out(
    folder: Path,
    changes: tuple[FileChange, ...],
    seen: Mapping[str, FileState],
    *,
    in_place: bool = False,
) -> tuple[str, ...]:
    """Replace the files; return the names under which the old files are kept.

    `seen` maps each file to its state before the audit. Raise FixError or OSError on failure; if
    no journal is left, no file has changed.
    """
    earlier = read_record(folder).fixes

    def stage(work: Path) -> Iterator[Entry]:
        fix = tuple(_staged(folder, work, changes, seen, in_place=in_place))
        yield from fix
        yield record_entry(work, len(fix), (*earlier, fix), seen.get(RECORD))

    journal = take_steps(folder, stage, is_undo=False)
    return tuple(entry.kept for entry in journal.entries if entry.kept)


def take_steps(folder: Path, stage: Callable[[Path], Iterable[Entry]], *, is_undo: bool) -> Journal:
    """Stage the new files in the work folder, write a journal of the steps, and take the steps."""
    with work_folder(folder) as work:
        try:
            journal = Journal(is_undo=is_undo, entries=tuple(stage(work)))
            require_as_seen(folder, journal.entries)
            write_journal(work, journal)
        except BaseException:
            discard_work(work)
            raise
        finish_entries(folder, work, journal.entries)
    return journal


def finish_interrupted(folder: Path) -> Journal | None:
    """Finish an interrupted run and return its journal.

    Return None, and remove the earlier run's staged files, if it wrote no journal.
    """
    if not os.path.lexists(folder / FIX_FOLDER):
        return None
    with work_folder(folder, exists=True) as work:
        journal = read_journal(work)
        if journal is None:
            discard_work(work)
            return None
        pending = tuple(one for one in journal.entries if is_pending(folder, work, one))
        try:
            require_as_seen(folder, pending)
        except FixError:
            if pending == journal.entries:  # no step was taken
                discard_work(work)
            raise
        finish_entries(folder, work, journal.entries)
        return journal


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
    numbers = count()
    for change in changes:
        path, state, staged = folder / change.file, seen.get(change.file), work / str(next(numbers))
        if change.before is None or state is None:
            stage_text(staged, change.after)
            yield _replacement(change.file, staged, change.after, before=None)
        elif change.renames and in_place and _fits(change):
            new_name = _free_name(folder, change.file + _KEPT_HEADER)
            stage_header(path, state, change.before, staged)
            yield _replacement(new_name, staged, change.before, before=None)
            headers = work / str(next(numbers))
            stage_text(headers, change.after + change.before)
            yield Entry(
                file=change.file,
                how="header",
                staged=headers.name,
                before=state,
                kept=new_name,
                written=written(state, change.after, is_header=True),
            )
        else:
            new_name = _free_name(folder, change.file + _KEPT)
            stage_replacement(path, state, change.before, change.after, staged)
            yield _replacement(change.file, staged, change.after, before=state, kept=new_name)


def _replacement(
    file: str, staged: Path, start: bytes, *, before: FileState | None, kept: str = ""
) -> Entry:
    """Return the step that moves a staged file, which begins with `start`, to the name `file`."""
    return Entry(
        file=file,
        how="replace",
        staged=staged.name,
        before=before,
        kept=kept,
        written=written(journal_state(staged.lstat()), start, is_header=False),
    )


def _fits(change: FileChange) -> bool:
    return change.before is not None and len(change.before) == len(change.after)


def _free_name(folder: Path, name: str) -> str:
    """Return the name, with a number added if a file of that name exists."""
    number, free = 0, name
    while os.path.lexists(folder / free):
        number += 1
        free = f"{name}.{number}"
    return free
