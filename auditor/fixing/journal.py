"""The journal of a fix: what is staged, and what it replaces. From it on, there is no way back.

All that is new lies in `FOLDER/.audit-fix/`, on the disk, before `journal.json` has its name:
until then a run that dies has changed nothing, and the next one clears it away. After it the files
take their places one after the other, each by one rename, and a run that dies is finished by the
next one from the journal. So each file is the old one or the new one, whole, at every moment.

A journal may be a stranger's, as all of a folder may: names are held to the folder, and a file
whose inode, size and time are not those that the journal has is not replaced.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins

from auditor.containers.bounded_json import parse_object
from auditor.containers.index import shard_fault
from auditor.downloader.local_file import read_all
from auditor.downloader.local_folder import FIX_FOLDER, FIX_JOURNAL
from auditor.errors import CheckpointError, FixError, SourceError
from auditor.fixing.local_files import FileState, current_state
from auditor.fixing.staging import stage_text
from auditor.messages import quoted

_BEGUN = f"{FIX_JOURNAL}.new"
_VERSION = 1
_LARGEST = 16 * 1024 * 1024  # bytes


class Entry(Struct, frozen=True, kw_only=True):
    """One file that takes the place of another, or a header that is written over another."""

    file: str
    staged: str  # its name in the journal's folder, a number
    how: Literal["file", "header"]
    before: FileState | None  # None: there was no such file
    kept: str | None = None  # under which name the old one stays; of a header: its old bytes


def write_journal(work: Path, entries: tuple[Entry, ...]) -> None:
    """From here on the fix is finished, by this run or by the next one."""
    values = {"version": _VERSION, "entries": [to_builtins(one) for one in entries]}
    stage_text(work / _BEGUN, json.dumps(values).encode())
    sync_folder(work)
    (work / _BEGUN).replace(work / FIX_JOURNAL)
    sync_folder(work)


def read_journal(work: Path) -> tuple[Entry, ...] | None:
    """What is to be done yet; None: there is no journal. FixError for one that is not ours."""
    path = work / FIX_JOURNAL
    if not os.path.lexists(path):
        return None
    try:
        values = parse_object(read_all(path, _LARGEST), FIX_JOURNAL)
        entries = values["entries"]
        if values["version"] == _VERSION and isinstance(entries, list):
            return tuple(map(_entry, entries))
    except (SourceError, CheckpointError, ValueError, TypeError, KeyError):
        pass
    raise FixError(
        f"{quoted(str(path))} is not a journal of this audit fix: look at what is in "
        f"{FIX_FOLDER}, and remove that folder"
    )


def _entry(values: Any) -> Entry:
    before = values["before"]
    entry = Entry(**{**values, "before": None if before is None else FileState(**before)})
    names = [entry.file, *([entry.kept] if entry.kept is not None else [])]
    if any("/" in name or shard_fault(name) for name in names) or not entry.staged.isdecimal():
        raise ValueError(entry.file)
    if entry.how not in {"file", "header"} or (
        entry.how == "header" and None in {entry.before, entry.kept}
    ):
        raise ValueError(entry.how)
    return entry


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard_work(work: Path) -> None:
    """Remove what was staged, the journal first; FixError where something else lies there."""
    names = os.listdir(work)  # noqa: PTH208 - names, not paths
    if strange := [one for one in names if not (one.isdecimal() or one in {FIX_JOURNAL, _BEGUN})]:
        raise FixError(
            f"{quoted(str(work))} holds {quoted(strange[0])}, which audit fix never made"
        )
    for name in sorted(names, reverse=True):  # letters before digits
        (work / name).unlink()
    work.rmdir()


# --- what is staged takes its place; each step can be done twice, so that any run can end it ----


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
