"""New files, written whole beside the old ones before anything is replaced.

The data of a weight file is copied by the kernel (copy_file_range; sendfile where that is not to be
had) and never comes into this process. Where the file system shares blocks (btrfs, XFS), the kernel
shares the data's: it takes no time and no space. Elsewhere a copy takes the space of the file.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from auditor.errors import FixError
from auditor.fixing.local_files import FileState, state_of
from auditor.fixing.new_files import BLOCK
from auditor.messages import quoted

_AT_ONCE = 256 * 1024 * 1024  # bytes of one call: between two of them Ctrl-C is heard
_NOT_HERE = {errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.EPERM}

_FICLONE = 0x40049409  # of linux/fs.h: share all blocks of a file

_Copy = Callable[[int, int, int, int, int], int]


def require_space(work: Path, sources: Sequence[tuple[Path, int]]) -> None:
    """Raises FixError, before hours are spent, where copies of files of that size find no room."""
    disk = os.statvfs(work)
    free, needed = disk.f_bavail * disk.f_frsize, sum(size for _, size in sources)
    if needed > free and not _shares_blocks(sources[0][0], work / "0"):
        raise FixError(
            f"copies of the weight files take {needed:,} bytes, and the disk has {free:,}: "
            f"--in-place writes the headers alone"
        )


def _shares_blocks(source: Path, target: Path) -> bool:
    """Whether a copy there takes no room: one is made, and removed."""
    try:
        with source.open("rb") as old, target.open("xb") as new:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
    except OSError:
        return False
    else:
        return True
    finally:
        target.unlink(missing_ok=True)


def stage_text(target: Path, content: bytes, like: os.stat_result | None = None) -> None:
    """A small file, on the disk when this returns, as open as the one that it is like."""
    with _new_file(target, like) as file:
        _write(file, content)


def stage_weights(source: Path, seen: FileState, before: bytes, after: bytes, target: Path) -> None:
    """The weight file with another header; FixError where it is not the one that was read."""
    with unchanged_file(source, seen, before) as old, _new_file(target, os.fstat(old)) as new:
        _write(new, after)
        _copy(old, new, len(before), len(after), seen.size - len(before))


@contextmanager
def unchanged_file(path: Path, seen: FileState, before: bytes) -> Iterator[int]:
    """The open file that was audited, with that header; it is looked at again at the end."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _require_unchanged(path, file, seen)
        if os.pread(file, len(before), 0) != before:
            raise FixError(f"{quoted(str(path))} has changed since it was audited: try again")
        yield file
        _require_unchanged(path, file, seen)
    finally:
        os.close(file)


def _require_unchanged(path: Path, file: int, seen: FileState) -> None:
    if not seen.is_same(state_of(os.fstat(file))):
        raise FixError(f"{quoted(str(path))} has changed since it was audited: try again")


@contextmanager
def _new_file(target: Path, like: os.stat_result | None) -> Iterator[int]:
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        if like is not None:
            with suppress(PermissionError):  # only root gives files to others
                os.fchown(file, like.st_uid, like.st_gid)
            os.fchmod(file, stat.S_IMODE(like.st_mode))
        yield file
        os.fsync(file)
    finally:
        os.close(file)


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _copy(source: int, target: int, start: int, to: int, length: int) -> None:
    """Bytes from `start` on, to `to` on: to the end of a block first, then whole blocks."""
    ways: list[_Copy] = [_by_sendfile]
    if hasattr(os, "copy_file_range"):
        ways.insert(0, _by_copy_file_range)
    first = min(-start % BLOCK, length)
    for offset, end in ((0, first), (first, length)):
        done = offset
        while done < end:
            count = min(_AT_ONCE, end - done)
            try:
                copied = ways[0](source, target, start + done, to + done, count)
            except OSError as error:
                if error.errno not in _NOT_HERE or len(ways) == 1:
                    raise
                del ways[0]
                continue
            if copied == 0:
                raise OSError(errno.EIO, "the file ends before its size says")
            done += copied


def _by_copy_file_range(source: int, target: int, start: int, to: int, count: int) -> int:
    return os.copy_file_range(source, target, count, start, to)


def _by_sendfile(source: int, target: int, start: int, to: int, count: int) -> int:
    os.lseek(target, to, os.SEEK_SET)
    return os.sendfile(target, source, start, count)
