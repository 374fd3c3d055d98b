"""A new file gets the owner, the mode and the extended attributes of the file that it replaces.

Access control lists are extended attributes on Linux. Windows has no owner and mode of this kind,
and Python cannot read extended attributes on macOS: what a platform lacks is not copied there.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from auditor.errors import FixError
from auditor.messages import quoted

_UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def copy_attributes(path: Path, source: int, target: int) -> None:
    """Copy the attributes of the open file `source`, at `path`, to the open file `target`.

    Raise FixError if an extended attribute cannot be copied. A change of owner is for root alone,
    and is left out without the right to it.
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
    for name in present.keys() - wanted.keys():  # from the default list of the folder
        os.removexattr(target, name)
    for name, value in wanted.items():
        if present.get(name) != value:
            os.setxattr(target, name, value)


def _extended(file: int) -> dict[str, bytes]:
    """The extended attributes of an open file; none on a file system that has no such thing."""
    try:
        return {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return {}
        raise
