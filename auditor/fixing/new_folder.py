"""Write a fixed folder: a complete copy, while the folder that it mends stays as it is.

The copy is built under a temporary name, read again, and then gets its name in one step. The kernel
copies data (copy_file_range) without passing it through this process; on a file system that shares
blocks (btrfs, XFS) such a copy takes no time and no space.
"""

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from auditor.checkpoint.snapshot import FileState, RepoFile
from auditor.downloader.local_file import state_of
from auditor.errors import FixError
from auditor.fixing.plan import FileChange
from auditor.messages import quoted

_AT_ONCE = 256 * 1024 * 1024  # bytes of one call, for whose end Ctrl-C has to wait
_READ_AT_ONCE = 4 * 1024 * 1024
_UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.EPERM}
_PARTIAL = ".partial"


def write_folder(  # noqa: PLR0913 - a source, a target and how to write it
    folder: Path,
    files: Sequence[RepoFile],
    changes: Mapping[str, FileChange],
    place: Path,
    *,
    link: bool,
    check: Callable[[Path], None],
) -> None:
    """Write a copy of the folder's files with some of them changed; `place` must not exist.

    With `link`, unchanged files are hard links. `check` gets the complete copy before it has its
    name, and raises FixError if it is not as planned. Raise FixError or OSError on failure; then
    nothing is left.
    """
    partial = place.with_name(f"{place.name}{_PARTIAL}")
    for path in (place, partial):
        if os.path.lexists(path):
            raise FixError(f"{quoted(str(path))} exists: remove it, or name another folder by --to")
    partial.mkdir(parents=True)
    try:
        states = dict.fromkeys(changes) | {file.name: file.state for file in files}
        for name, state in states.items():
            target = partial / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(folder / name, state, changes.get(name), target, link=link)
        shutil.copymode(folder, partial)
        check(partial)
        _sync(partial)
        partial.rename(place)  # fails if somebody has made a folder of this name that is not empty
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync(place.parent)


def _write(
    source: Path, listed: FileState | None, change: FileChange | None, target: Path, *, link: bool
) -> None:
    """Write the new version of one file, or a copy or a hard link if nothing changes.

    Raise FixError if the file is not in the state in which it was listed.
    """
    if change is not None and change.before is None:
        target.write_bytes(change.after)
        _sync(target)
        return
    if change is None and link:
        os.link(source.resolve(), target)
        _require_listed(source, target.stat(), listed)
        return
    before, after = (b"", b"") if change is None else (change.before or b"", change.after)
    with source.open("rb") as old, target.open("xb", buffering=0) as new:
        _require_listed(source, os.fstat(old.fileno()), listed)
        if old.read(len(before)) != before:
            raise _changed(source)
        new.write(after)
        size = os.fstat(old.fileno()).st_size
        _copy(old.fileno(), new.fileno(), len(before), len(after), size - len(before))
        os.fsync(new.fileno())
        _require_listed(source, os.fstat(old.fileno()), listed)
    if change is None:
        shutil.copystat(source, target)
    else:
        shutil.copymode(source, target)


def _require_listed(path: Path, status: os.stat_result, listed: FileState | None) -> None:
    if listed is None or not listed.is_same(state_of(status)):
        raise _changed(path)


def _changed(path: Path) -> FixError:
    return FixError(f"{quoted(str(path))} has changed since it was audited: try again")


def _copy(source: int, target: int, start: int, to: int, length: int) -> None:
    """Copy `length` bytes from the offset `start` in one file to the offset `to` in another."""
    copy = _by_kernel if hasattr(os, "copy_file_range") else _by_reading
    done = 0
    while done < length:
        try:
            copied = copy(source, target, start + done, to + done, length - done)
        except OSError as error:
            if error.errno not in _UNSUPPORTED or copy is _by_reading:
                raise
            copy = _by_reading
            continue
        if copied == 0:
            raise OSError(errno.EIO, "the file is shorter than its size")
        done += copied


def _by_kernel(source: int, target: int, start: int, to: int, count: int) -> int:
    return os.copy_file_range(source, target, min(count, _AT_ONCE), start, to)


def _by_reading(source: int, target: int, start: int, to: int, count: int) -> int:
    os.lseek(source, start, os.SEEK_SET)
    os.lseek(target, to, os.SEEK_SET)
    return os.write(target, os.read(source, min(count, _READ_AT_ONCE)))


def _sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk; Windows syncs no folder."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
