"""The journal of a fix or an undo: a list of steps, by which an interrupted run is finished.

All new files are on the disk, in the work folder, before `journal.json` gets its name. A run that
ends earlier has changed nothing, and the next run removes its files. Afterwards the steps are taken
in order, each by one rename; the next run takes the steps that a killed run did not take. So each
file is the complete old file or the complete new file at every moment.

A journal is untrusted, like any file of the folder. It is obeyed if it has a seal that only this
user can make (`own_key`), its names are names of files in the folder, and a file is
replaced or removed only if its inode, size and time are those in the journal.
"""

import hmac
import json
import os
from functools import lru_cache
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Literal, TypeVar

from msgspec import DecodeError, Struct, to_builtins
from msgspec.json import decode
from msgspec.structs import replace

from auditor.checkpoint.snapshot import FileState
from auditor.containers.index import shard_fault
from auditor.downloader.local_file import read_all
from auditor.downloader.local_folder import FIX_FOLDER, FIX_JOURNAL
from auditor.errors import FixError, SourceError
from auditor.fixing.local_files import (
    MAX_START,
    WrittenFile,
    current_state,
    no_follow,
    open_to_read,
)
from auditor.fixing.renaming import (
    changed_error,
    exchange,
    keep_or_return,
    remove_file,
    rename_new,
    require_free,
    require_same,
)
from auditor.fixing.staging import stage_text, write_all
from auditor.fixing.work_folder import NEW_JOURNAL, discard_work, sync_folder
from auditor.messages import quoted

_LARGEST = 16 * 1024 * 1024  # bytes of a journal or a record

_KEY = 32  # bytes


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


class Sealed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file whose seal proves that this user's audit fix wrote it."""

    seal: str = ""

    def own_seal(self) -> str:
        """Return the seal that this user's audit fix gives to the file."""
        text = json.dumps(to_builtins(replace(self, seal="")))
        return hmac.new(own_key(), text.encode(), "sha256").hexdigest()


T = TypeVar("T", bound=Sealed)


@lru_cache(maxsize=1)
def own_key() -> bytes:
    """Return this user's key, which the first fix makes, outside of all folders of models.

    If it cannot be written, each process has another one, and nothing can be finished or undone
    later.
    """
    from huggingface_hub import constants  # noqa: PLC0415 - 0.1 s, only where a fix is applied

    path = Path(constants.HF_HOME) / "hf-audit" / "fix.key"
    new = token_bytes(_KEY)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            staged = path.with_name(f".fix.{token_hex(8)}")
            with open(staged, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(new)
            rename_new(staged, path)
        key = path.read_bytes()
    except (OSError, FixError):
        return new
    return key if len(key) == _KEY else new


class Journal(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    remedy = f"each old file is FILE or FILE.orig; look at them, and remove {FIX_FOLDER}"
    return decoded(work / FIX_JOURNAL, Journal, remedy)


def encoded(values: Sealed) -> bytes:
    return json.dumps(to_builtins(replace(values, seal=values.own_seal()))).encode()


def decoded(path: Path, kind: type[T], remedy: str) -> T:
    """Decode a file that `encoded` wrote; raise FixError if the file has any other content."""
    try:
        values = decode(read_all(path, _LARGEST), type=kind)
    except (SourceError, DecodeError, UnicodeDecodeError, RecursionError):
        values = None
    if values is None or values.seal != values.own_seal():
        raise FixError(
            f"{quoted(str(path))} was not written by this version of audit fix, run by you: "
            f"{remedy}"
        )
    return values


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
        path, before = folder / entry.file, entry.before
        now = current_state(path)
        if entry.how == "header" and before and now and now.inode == before.inode:
            continue  # an interrupted run may have written to it: `_write_header` checks
        # An interrupted run may have given the old file one of the other names.
        names = (path, folder / entry.kept, folder / FIX_FOLDER / entry.staged)
        states = map(current_state, names)
        if not (any(map(before.is_same, states)) if before else now is None):
            raise changed_error(path)
        if entry.how == "replace" and entry.kept and not _is_kept(folder, entry):
            require_free(folder / entry.kept)


def _is_kept(folder: Path, entry: Entry) -> bool:
    """Whether the old file has the name `kept`."""
    return bool(
        entry.kept and entry.before and entry.before.is_same(current_state(folder / entry.kept))
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
    path, kept, before = folder / entry.file, folder / entry.kept, entry.before
    if entry.how == "header":
        _write_header(path, work / entry.staged, before)
    elif before is None:
        rename_new(work / entry.staged, path)
    elif entry.how == "remove":
        remove_file(path, work, before)
    elif entry.how == "restore":
        if _is_kept(folder, entry) or exchange(kept, path, before):
            remove_file(kept, work, before)
        else:
            require_same(path, before)
            kept.replace(path)
    else:
        _replace(folder, work / entry.staged, entry, before)


def _replace(folder: Path, staged: Path, entry: Entry, before: FileState) -> None:
    """Give the staged file the name of the old one, and the old one the name `kept`, if any."""
    path = folder / entry.file
    is_exchanged = before.is_same(current_state(staged))  # by an interrupted run
    if is_exchanged or (os.path.lexists(path) and exchange(staged, path, before)):
        if entry.kept:
            keep_or_return(staged, folder / entry.kept, path)
        else:
            staged.unlink()
        return
    _keep(folder, entry)
    if not os.path.lexists(path):
        rename_new(staged, path)
    else:
        require_same(path, before)
        staged.replace(path)


def _keep(folder: Path, entry: Entry) -> None:
    """Give the old file the name `kept`: by a hard link if possible, else by renaming it.

    Raise FixError if another file has the name.
    """
    if not entry.kept or _is_kept(folder, entry):
        return
    path, kept = folder / entry.file, folder / entry.kept
    is_linked = False
    if getattr(os, "link", None) in os.supports_follow_symlinks:
        try:
            os.link(path, kept, follow_symlinks=False)
            is_linked = True
        except FileNotFoundError:
            raise changed_error(path) from None
        except OSError:  # FAT has no hard links; or the name exists, which `rename_new` reports
            pass
    if not is_linked:
        rename_new(path, kept)
    if not _is_kept(folder, entry):
        raise FixError(f"{changed_error(path)}; {quoted(str(kept))} is another name of it")


def _write_header(path: Path, staged: Path, before: FileState | None) -> None:
    """Write the new header over the old one, or over the mixture that an interrupted run left."""
    with open_to_read(staged) as both:
        content = both.read(2 * MAX_START)
    new, old = content[: len(content) // 2], content[len(content) // 2 :]
    with open(path, "r+b", buffering=0, opener=no_follow) as file:
        now = file.read(len(new))
        status = os.fstat(file.fileno())
        is_same = before and status.st_ino == before.inode and status.st_nlink <= before.links
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


class Record(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    remedy = "remove it, and undo what was fixed before by hand (FILE.orig is the old FILE)"
    return decoded(path, Record, remedy)


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
