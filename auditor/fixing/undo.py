"""Undo the last fix of a folder: restore the files that it replaced, remove those it added."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from auditor.checkpoint.snapshot import FileState
from auditor.errors import FixError
from auditor.fixing.carrying_out import finish_interrupted, take_steps
from auditor.fixing.journal import RECORD, Entry, Journal, read_record, record_entry
from auditor.fixing.local_files import current_state, open_to_read
from auditor.fixing.staging import stage_text
from auditor.messages import quoted


class Undone(Struct, frozen=True, kw_only=True):
    """The names of the restored files and of the removed files."""

    restored: tuple[str, ...]
    removed: tuple[str, ...]


def undo_fix(folder: Path) -> Undone:
    """Undo the last fix, or finish an undo that was interrupted.

    Raise FixError, and change nothing, if a file has changed since the fix.
    Raise OSError if a file cannot be read or moved.
    """
    journal = finish_interrupted(folder)
    if journal is None or not journal.is_undo:
        journal = _undo_last(folder)
    entries = [entry for entry in journal.entries if entry.file != RECORD]
    return Undone(
        restored=tuple(sorted(entry.file for entry in entries if entry.how != "remove")),
        removed=tuple(sorted(entry.file for entry in entries if entry.how == "remove")),
    )


def _undo_last(folder: Path) -> Journal:
    record_state = current_state(folder / RECORD)
    fixes = read_record(folder).fixes
    if record_state is None or not fixes:
        raise FixError(f"{quoted(str(folder))} has no {RECORD}: there is no audit fix to undo")
    *earlier, last = fixes
    states = [_unchanged_state(folder, entry) for entry in last]

    def stage(work: Path) -> Iterator[Entry]:
        for entry, state in zip(reversed(last), reversed(states), strict=True):
            yield _opposite(folder, work, entry, state)
        yield record_entry(work, len(last), tuple(earlier), record_state)

    return take_steps(folder, stage, is_undo=True)


def _unchanged_state(folder: Path, entry: Entry) -> FileState:
    """Return the new file's state; raise FixError if that file or the kept old one has changed."""
    path, old_path = folder / entry.file, folder / entry.kept
    state, kept_state = current_state(path), current_state(old_path)
    if not state or not entry.written or not entry.written.is_still_in(path, state):
        detail = f": compare it with {quoted(entry.kept)}" if entry.kept else ""
        raise FixError(
            f"{quoted(str(path))} has changed since audit fix wrote it, so nothing was undone"
            f"{detail}"
        )
    if entry.how == "header":
        if state.links > 1:
            raise FixError(
                f"{quoted(str(path))} has {state.links} hard links, so nothing was undone"
            )
    elif entry.before and not (
        kept_state and kept_state.is_regular and entry.before.has_same_content(kept_state)
    ):
        raise FixError(
            f"{quoted(str(old_path))} is missing, or not the file that audit fix kept, "
            f"so nothing was undone"
        )
    return state


def _opposite(folder: Path, work: Path, entry: Entry, before: FileState) -> Entry:
    """Return the step that undoes one step of a fix."""
    if entry.how == "header" and entry.written:
        length = entry.written.length
        with (
            open_to_read(folder / entry.kept) as old_file,
            open_to_read(folder / entry.file) as file,
        ):
            old, new = old_file.read(length), file.read(length)
        stage_text(work / entry.staged, old + new)
        return Entry(file=entry.file, how="header", staged=entry.staged, before=before)
    if entry.before:
        return Entry(file=entry.file, how="restore", before=before, kept=entry.kept)
    return Entry(file=entry.file, how="remove", before=before)
