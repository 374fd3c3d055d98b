"""The CPUs and the address space of this process.

A sweep stays on one CPU, because Python runs one thread at a time. With threads on several CPUs the
interpreter and its data move from CPU to CPU, which takes a sixth of the processor time of a sweep
if the Hub is 150 ms away, and a fifth if it is near.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FIELD = 36  # index of the CPU in /proc/thread-self/stat after the name; field 39 in proc(5)


def cpu_count() -> int:
    """Return the number of CPUs that this process may use; all CPUs if that is unknown."""
    return len(_allowed()) or os.cpu_count() or 1


def _allowed() -> set[int]:
    """Return the CPUs that the calling thread may use; an empty set if that is unknown."""
    with suppress(AttributeError, OSError):  # only Linux has the function
        return os.sched_getaffinity(0)
    return set()


_ALL = _allowed()  # the CPUs allowed at the start of this process


@contextmanager
def one_cpu() -> Iterator[None]:
    """Keep the calling thread, and threads that it starts inside the block, on its current CPU.

    The system chose that CPU because it was free. If the CPU cannot be read or set, nothing
    changes.
    """
    with _on({_current()} & _ALL):
        yield


@contextmanager
def every_cpu() -> Iterator[None]:
    """Let threads and processes started inside the block use every CPU of this process."""
    with _on(_ALL):
        yield


@contextmanager
def _on(cpus: set[int]) -> Iterator[None]:
    before = _allowed()
    _move(cpus)
    try:
        yield
    finally:
        _move(before)


def _move(cpus: set[int]) -> None:
    if cpus:
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(0, cpus)


def _current() -> int:
    try:
        status = Path("/proc/thread-self/stat").read_text(encoding="utf-8", errors="replace")
        return int(status.rpartition(")")[2].split()[_FIELD])
    except (OSError, ValueError, IndexError):
        return -1


def require_address_space(size: int) -> None:
    """Raise MemoryError unless this process may reserve `size` more bytes now.

    Call it before using a library that ends the process if it gets no memory.
    """
    try:
        mmap.mmap(-1, size).close()
    except (OSError, ValueError):
        raise MemoryError from None
