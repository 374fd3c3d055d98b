"""The standard streams as they may be: closed, full, or of a terminal that has only ASCII."""

import errno
import os
import sys
from io import TextIOWrapper
from typing import TextIO

# What write(2) says of a stream that takes no more; its errors name no file, as those of open do.
WRITE_FAULTS = frozenset(
    (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EINVAL, errno.EIO, errno.ENOSPC)
)


def prepare_streams() -> None:
    r"""Make stdin, stdout and stderr usable, each under its own number.

    One that the caller has closed (`>&-`) is None to Python; it becomes one that has nothing to
    read and cannot be written to. What a terminal's encoding lacks is shown as \u2026.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDONLY), mode))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Send what is left in a stream nowhere: Python writes it out at exit, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
