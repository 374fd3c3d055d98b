"""Stage new files: write them into the work folder before any file is replaced.

The kernel copies the data of a weight file (copy_file_range), without passing it through this
process. On a file system that shares blocks (btrfs, XFS) the copy takes no time and no space;
elsewhere it takes the space of the file. If the kernel has no such call, the data is read and
written.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from auditor.checkpoint.snapshot import FileState
from auditor.errors import FixError
from auditor.fixing.local_files import journal_state, no_follow, open_to_read
from auditor.fixing.new_files import BLOCK
from auditor.messages import quoted

_AT_ONCE = 256 * 1024 * 1024  # bytes of one call, for whose end Ctrl-C has to wait
_READ_AT_ONCE = 4 * 1024 * 1024
_UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.EPERM}

_FICLONE = 0x40049409  # ioctl of linux/fs.h: share all blocks of a file


def require_space(work: Path, sources: Sequence[tuple[Path, int]]) -> None:
    """Raise FixError if copies of the files do not fit on the disk and cannot share their blocks.

    This is checked first, because copying may take hours.
    """
    free, needed = shutil.disk_usage(work).free, sum(size for _, size in sources)
    if needed > free and not _shares_blocks(sources[0][0], work / "0"):
        raise FixError(
            f"copies of the weight files take {needed:,} bytes, and the disk has {free:,}: "
            f"--in-place writes the headers alone"
        )


def _shares_blocks(source: Path, target: Path) -> bool:
    """Whether a copy shares the blocks of `source`; tested by making a copy and removing it."""
    try:
        from fcntl import ioctl  # noqa: PLC0415 - Windows has no such module
    except ImportError:
        return False
    try:
        with source.open("rb") as old, target.open("xb") as new:
            ioctl(new.fileno(), _FICLONE, old.fileno())
    except OSError:
        return False
    else:
        return True
    finally:
        target.unlink(missing_ok=True)


def stage_text(target: Path, content: bytes) -> None:
    """Write a new file, and return when it is on the disk."""
    with _new_file(target) as file:
        write_all(file, content)


def stage_replacement(
    source: Path, seen: FileState, before: bytes, after: bytes, target: Path
) -> None:
    """Write a copy of `source` whose start is `after` instead of `before`.

    The new file has the attributes of the old one. Raise FixError if `source` has changed since it
    was audited.
    """
    with unchanged_file(source, seen, before) as old, _new_file(target) as new:
        write_all(new, after)
        _copy(old, new, len(before), len(after), seen.size - len(before))
        copy_attributes(source, old, new)


def stage_header(source: Path, seen: FileState, header: bytes, target: Path) -> None:
    """Write `header`, the header of `source`, to a new file with the attributes of `source`.

    Raise FixError if `source` has changed since it was audited.
    """
    with unchanged_file(source, seen, header) as old, _new_file(target) as new:
        write_all(new, header)
        copy_attributes(source, old, new)


@contextmanager
def unchanged_file(path: Path, seen: FileState, start: bytes) -> Iterator[int]:
    """Open a file; raise FixError if it has changed since the audit, or changes while open.

    `start` are the bytes with which the audited file begins.
    """
    with open_to_read(path) as file:
        _require_unchanged(path, file.fileno(), seen)
        if file.read(len(start)) != start:
            raise _changed(path)
        yield file.fileno()
        _require_unchanged(path, file.fileno(), seen)


def _require_unchanged(path: Path, file: int, seen: FileState) -> None:
    if not seen.is_same(journal_state(os.fstat(file))):
        raise _changed(path)


def _changed(path: Path) -> FixError:
    return FixError(f"{quoted(str(path))} has changed since it was audited: try again")


@contextmanager
def _new_file(target: Path) -> Iterator[int]:
    with open(target, "xb", buffering=0, opener=no_follow) as file:
        yield file.fileno()
        os.fsync(file.fileno())


def write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _copy(source: int, target: int, start: int, to: int, length: int) -> None:
    """Copy `length` bytes from the offset `start` in one file to the offset `to` in another.

    First copy up to the next block boundary of the source, then the rest.
    """
    copy = _by_kernel if hasattr(os, "copy_file_range") else _by_reading
    first = min(-start % BLOCK, length)
    for offset, end in ((0, first), (first, length)):
        done = offset
        while done < end:
            try:
                copied = copy(source, target, start + done, to + done, end - done)
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


# --- owner, mode and extended attributes ----------------------------------------------------------


# On Linux, access control lists are extended attributes. Extended attributes are not copied on
# macOS, where Python cannot read them; Windows has no owner and mode of this kind.

_NO_ATTRIBUTES = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def copy_attributes(path: Path, source: int, target: int) -> None:
    """Copy the attributes of the open file `source`, at `path`, to the open file `target`.

    Raise FixError if an extended attribute cannot be copied. Only root can change the owner;
    without that right the owner stays.
    """
    status = os.fstat(source)
    if hasattr(os, "fchown"):
        for owner, group in ((status.st_uid, -1), (-1, status.st_gid)):
            with suppress(PermissionError):
                os.fchown(target, owner, group)
    if hasattr(os, "fchmod"):
        os.fchmod(target, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        try:
            _copy_extended(source, target)
        except OSError as error:
            raise FixError(
                f"the extended attributes of {quoted(str(path))} cannot be copied to the new file: "
                f"{error.strerror or error}; fix a copy of the folder that has none (cp -rL)"
            ) from None


def _copy_extended(source: int, target: int) -> None:
    wanted, present = _extended(source), _extended(target)
    for name in present.keys() - wanted.keys():  # from the folder's default access control list
        os.removexattr(target, name)
    for name, value in wanted.items():
        if present.get(name) != value:
            os.setxattr(target, name, value)


def _extended(file: int) -> dict[str, bytes]:
    """Return the extended attributes of an open file; {} if the file system has no attributes."""
    try:
        return {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except OSError as error:
        if error.errno in _NO_ATTRIBUTES:
            return {}
        raise
