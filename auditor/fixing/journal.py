"""The journal of a fix or an undo: a list of steps, by which an interrupted run is finished.

All new files are on the disk, in the work folder, before `journal.json` gets its name. A run that
ends earlier has changed nothing, and the next run removes its files. Afterwards the steps are taken
in order, each by one rename; the next run takes the steps that a killed run did not take. So each
file is the complete old file or the complete new file at every moment.

A journal is untrusted, like any file of the folder: its names must be names of files in the folder,
and a file is replaced only if its inode, size and time are those in the journal.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import DecodeError, Struct, to_builtins
from msgspec.json import decode

from auditor.checkpoint.snapshot import FileState
from auditor.containers.index import shard_fault
from auditor.downloader.folder_listing import FIX_FOLDER, FIX_JOURNAL
from auditor.downloader.local_file import read_all
from auditor.errors import FixError, SourceError
from auditor.fixing.local_files import (
    MAX_START,
    WrittenFile,
    current_state,
    no_follow,
    open_to_read,
)
from auditor.fixing.staging import stage_text, write_all
from auditor.fixing.work_folder import NEW_JOURNAL, discard_work, sync_folder
from auditor.messages import quoted

_LARGEST = 16 * 1024 * 1024  # bytes of a journal or a record

T = TypeVar("T")


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of a fix or an undo, with the state of its file before the step.

    - replace: a staged file takes the name `file`; the old file, if kept, gets the name `kept`;
    - header: the staged file contains the new and the old header; the new one overwrites the old
      one in `file`;
    - restore: the file `kept` takes the name `file`;
    - remove: `file` is removed.
    """

    file: str
    how: Literal["replace", "header", "restore", "remove"]
    before: FileState | None  # None: the file does not exist
    staged: str = ""  # the staged file's name in the work folder, a number
    kept: str = ""
    written: WrittenFile | None = None  # a description of the new file, for an undo

    def __post_init__(self) -> None:
        """Raise ValueError if a name leads out of the folder, or a field is missing."""
        for name in filter(None, (self.file, self.kept)):
            if "/" in name or shard_fault(name):
                raise ValueError(f"{quoted(name)} is not a file's name")
        if (self.how in {"replace", "header"}) != self.staged.isdecimal():
            raise ValueError("a staged file has no number")
        if not self.file or (self.how == "restore" and not self.kept):
            raise ValueError("a name is missing")
        if self.before is None and self.how != "replace":
            raise ValueError("a state is missing")


class Journal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of one fix or undo."""

    version: Literal[2] = 2
    is_undo: bool
    entries: tuple[Entry, ...]


def write_journal(work: Path, journal: Journal) -> None:
    """Write the journal; afterwards this run or a later one takes all of its steps."""
    stage_text(work / NEW_JOURNAL, encoded(journal))
    sync_folder(work)
    (work / NEW_JOURNAL).replace(work / FIX_JOURNAL)
    sync_folder(work)


def read_journal(work: Path) -> Journal | None:
    """Return the journal of an interrupted run, else None; raise FixError if it is broken."""
    if not os.path.lexists(work / FIX_JOURNAL):
        return None
    return decoded(work / FIX_JOURNAL, Journal, f"look at what is in {FIX_FOLDER}, and remove it")


def encoded(values: Struct) -> bytes:
    return json.dumps(to_builtins(values)).encode()


def decoded(path: Path, kind: type[T], remedy: str) -> T:
    """Decode a file that `encoded` wrote; raise FixError if the file has any other content."""
    try:
        return decode(read_all(path, _LARGEST), type=kind)
    except (SourceError, DecodeError, UnicodeDecodeError, RecursionError):
        raise FixError(
            f"{quoted(str(path))} was not written by this version of audit fix: {remedy}"
        ) from None


# --- the steps; each can be repeated, so that a run can finish an earlier one --------------------


def is_pending(folder: Path, work: Path, entry: Entry) -> bool:
    """Whether a step has not been taken."""
    if entry.how == "restore":
        return os.path.lexists(folder / entry.kept)
    if entry.how == "remove":
        return os.path.lexists(folder / entry.file)
    return os.path.lexists(work / entry.staged)


def require_as_seen(folder: Path, entries: tuple[Entry, ...]) -> None:
    """Raise FixError if a file that is to be replaced has changed since the audit."""
    for entry in entries:
        now, before = current_state(folder / entry.file), entry.before
        if entry.how == "header" and before and now and now.inode == before.inode:
            continue  # an interrupted run may have written to it: `_write_header` checks
        if now is None and before is not None and entry.how == "replace" and entry.kept:
            now = current_state(folder / entry.kept)  # moved there: no hard links here
        is_same = now is None if before is None else before.is_same(now)
        if not is_same:
            raise FixError(
                f"{quoted(str(folder / entry.file))} has changed since it was audited, and is "
                f"left as it is: try again"
            )


def finish_entries(folder: Path, work: Path, entries: tuple[Entry, ...]) -> None:
    """Take all steps; if a signal interrupts them, take the rest before its exception is raised."""
    try:
        _finish(folder, work, entries)
    except Exception:
        raise
    except BaseException:
        _finish(folder, work, entries)
        raise


def _finish(folder: Path, work: Path, entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        if is_pending(folder, work, entry):
            _take(folder, work, entry)
    sync_folder(folder)
    if work.exists():
        discard_work(work)


def _take(folder: Path, work: Path, entry: Entry) -> None:
    path = folder / entry.file
    match entry.how:
        case "replace":
            _keep(folder, entry)
            (work / entry.staged).replace(path)
        case "header":
            _write_header(path, work / entry.staged, entry.before)
        case "restore":
            (folder / entry.kept).replace(path)
        case "remove":
            path.unlink(missing_ok=True)


def _keep(folder: Path, entry: Entry) -> None:
    """Give the old file the name `kept`: by a hard link if possible, else by renaming it."""
    if not entry.kept or os.path.lexists(folder / entry.kept):
        return
    if getattr(os, "link", None) in os.supports_follow_symlinks:
        with suppress(OSError):  # FAT has no hard links
            os.link(folder / entry.file, folder / entry.kept, follow_symlinks=False)
            return
    (folder / entry.file).replace(folder / entry.kept)


def _write_header(path: Path, staged: Path, before: FileState | None) -> None:
    """Write the new header over the old one, or over the mixture that an interrupted run left."""
    with open_to_read(staged) as both:
        content = both.read(2 * MAX_START)
    new, old = content[: len(content) // 2], content[len(content) // 2 :]
    with open(path, "r+b", buffering=0, opener=no_follow) as file:
        now = file.read(len(new))
        is_same = before is not None and os.fstat(file.fileno()).st_ino == before.inode
        if not is_same or len(now) != len(new) or not _is_of_both(now, new, old):
            raise FixError(
                f"{quoted(str(path))} has changed since it was audited: if it is as it should be, "
                f"remove {FIX_FOLDER}"
            )
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        write_all(file.fileno(), new)
        os.fsync(file.fileno())
    staged.unlink()


def _is_of_both(now: bytes, new: bytes, old: bytes) -> bool:
    """Whether each byte of `now` equals the byte at its offset in the new or the old header."""
    return now in {old, new} or all(
        byte in pair for byte, *pair in zip(now, new, old, strict=False)
    )


# --- the record of all fixes, `FOLDER/.audit-fix.json` --------------------------------------------


RECORD = ".audit-fix.json"


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of every fix that can be undone, in the order in which they were taken."""

    version: Literal[1] = 1
    fixes: tuple[tuple[Entry, ...], ...] = ()


def read_record(folder: Path) -> Record:
    """Return the folder's record, or an empty record if the file is absent.

    Raise FixError if the file is broken.
    """
    path = folder / RECORD
    if not os.path.lexists(path):
        return Record()
    return decoded(path, Record, "remove it, and undo what was fixed before by hand")


def record_entry(
    work: Path, number: int, fixes: tuple[tuple[Entry, ...], ...], before: FileState | None
) -> Entry:
    """Stage a record of these fixes as the file `number`, and return the step that installs it.

    Without fixes, return the step that removes the record.
    """
    if not fixes:
        return Entry(file=RECORD, how="remove", before=before)
    stage_text(work / str(number), encoded(Record(fixes=fixes)))
    return Entry(file=RECORD, how="replace", staged=str(number), before=before)
