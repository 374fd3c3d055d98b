"""The CPUs and the address space of this process.

A sweep stays on one CPU, because Python runs one thread at a time. Threads on several CPUs move the
interpreter and its data from one CPU to another, which takes a sixth of the processor time of a
sweep whose Hub is 150 ms away, and a fifth of one close by.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FIELD = 36  # of /proc/thread-self/stat after the name: a thread's CPU, field 39 of proc(5)


def cpu_count() -> int:
    """Count the CPUs that this process may use; all of the machine's if that is unknown."""
    return len(_allowed()) or os.cpu_count() or 1


def _allowed() -> set[int]:
    """Return the CPUs that the calling thread may use; an empty set if that is unknown."""
    with suppress(AttributeError, OSError):  # Linux alone has the function
        return os.sched_getaffinity(0)
    return set()


_ALL = _allowed()  # at the start of this process


@contextmanager
def one_cpu() -> Iterator[None]:
    """Keep the calling thread, and threads that it starts inside the block, on its present CPU.

    The system chose that CPU because it had room. If the system cannot tell or set the CPU, the
    block changes nothing.
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

    Some libraries end the process if memory is refused to them.
    """
    try:
        mmap.mmap(-1, size).close()
    except (OSError, ValueError):
        raise MemoryError from None
