"""Use the standard streams in any state: closed, full, endless, or with a small character set."""

import errno
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import count
from typing import NamedTuple, TextIO

# Errors of write(2) to a closed pipe or a full disk. They name no file, unlike errors of open(2).
WRITE_FAULTS = frozenset(
    (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EINVAL, errno.EIO, errno.ENOSPC)
)

# Characters of a line that names a model: a path on Linux has 4,096 bytes at most.
LONGEST_LINE = 4096
_EXPECTED = "expected one model on each line; separate models by line breaks"


class ListLine(NamedTuple):
    """A line of a list of models, without surrounding spaces; cut if it is too long."""

    number: int  # counted from 1
    text: str
    fault: str = ""  # the reason if the line cannot name a model


def lines_of(stream: TextIO) -> Iterator[ListLine]:
    """Yield each line as soon as it has arrived; at most LONGEST_LINE characters are in memory.

    The start of a longer line is yielded before the rest is skipped, which may be endless.
    """
    for number in count(1):
        piece = stream.readline(LONGEST_LINE + 1)
        if not piece:
            return
        fault = ""
        if len(piece) > LONGEST_LINE:
            fault = f"line {number:,} has more than {LONGEST_LINE:,} characters, {_EXPECTED}"
        elif "\0" in piece:
            fault = f"line {number:,} has a zero byte, {_EXPECTED}"
        yield ListLine(number, piece.strip(), fault)
        while piece and not piece.endswith("\n"):
            piece = stream.readline(LONGEST_LINE)


def prepare_streams() -> None:
    r"""Make stdin, stdout and stderr usable, each with its own file descriptor.

    A stream that the caller closed (`>&-`) is None in Python; it is replaced by an empty stream
    that cannot be written to. A character that the encoding lacks is escaped, as in \u2026.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDONLY), mode))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Discard a stream's buffered text, because flushing the stream at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
