"""Renames that lose no file, whatever another program does meanwhile.

A check before a rename does not exclude that another file has the name by then. So files change
names by calls of Linux that replace nothing, and what was moved is compared afterwards. Elsewhere,
and on file systems without these calls (NFS), a check just before the rename has to do.
"""

import errno
import os
from pathlib import Path
from secrets import randbelow

from auditor.checkpoint.snapshot import FileState
from auditor.errors import FixError
from auditor.fixing.local_files import current_state
from auditor.messages import quoted

_NO_REPLACE, _EXCHANGE = 1, 2  # flags of renameat2
_HERE = -100  # AT_FDCWD
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def require_same(path: Path, before: FileState) -> None:
    if not before.is_same(current_state(path)):
        raise changed_error(path)


def changed_error(path: Path) -> FixError:
    return FixError(
        f"{quoted(str(path))} has changed since it was audited, and is left as it is: try again"
    )


def require_free(path: Path) -> None:
    if os.path.lexists(path):
        raise FixError(
            f"{quoted(str(path))} came to exist while audit fix was at work, and is left as it is: "
            f"move it away, and run audit fix again"
        )


def rename_new(path: Path, new: Path) -> None:
    """Rename a file to a name that no file has; raise FixError if there is one."""
    try:
        if not _rename(path, new, _NO_REPLACE):
            require_free(new)
            path.rename(new)  # Windows replaces nothing
    except FileExistsError:
        require_free(new)
        raise


def exchange(new: Path, path: Path, before: FileState) -> bool:
    """Exchange a new file with the one at `path`; raise FixError if that is not `before`.

    Afterwards `new` is the name of the old file. Return False if the system cannot exchange files.
    """
    if not _rename(new, path, _EXCHANGE):
        return False
    if not before.is_same(current_state(new)):
        _rename(new, path, _EXCHANGE)
        raise changed_error(path)
    return True


def keep_or_return(old: Path, kept: Path, path: Path) -> None:
    """Give an old file, which was exchanged with the new one at `path`, the name `kept`.

    Raise FixError, and exchange the two again, if another file has the name.
    """
    try:
        rename_new(old, kept)
    except FixError:
        _rename(old, path, _EXCHANGE)
        raise


def remove_file(path: Path, work: Path, before: FileState) -> None:
    """Move a file into the work folder, and remove it there if it is `before`.

    Raise FixError, and move it back, if it is another one.
    """
    moved = work / str(10**9 + randbelow(10**9))  # a name that `discard_work` knows
    rename_new(path, moved)
    if not before.is_same(current_state(moved)):
        rename_new(moved, path)
        raise changed_error(path)
    moved.unlink()


def _rename(path: Path, new: Path, flag: int) -> bool:
    """Rename a file by renameat2; return False if the system does not support it."""
    try:
        from ctypes import CDLL, get_errno  # noqa: PLC0415 - only where a fix is applied

        rename = CDLL(None, use_errno=True).renameat2
    except (ImportError, AttributeError, TypeError, OSError):  # TypeError: Windows
        return False
    if rename(_HERE, os.fsencode(path), _HERE, os.fsencode(new), flag) == 0:
        return True
    code = get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(path), None, str(new))
