"""The CPUs that a process runs on: one, for threads of which the interpreter runs one at a time.

Threads on several CPUs hand the interpreter, and all that it works on, from one CPU to another: a
sixth of the processor time of a sweep behind 150 ms, and a fifth of one close by.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FIELD = 36  # of /proc/thread-self/stat after the name: field 39 of proc(5), the CPU of a thread


def cpu_count() -> int:
    """The CPUs that this process may run on; all of the machine's if the system cannot tell."""
    return len(_allowed()) or os.cpu_count() or 1


def _allowed() -> set[int]:
    """The CPUs that the calling thread may run on; empty if the system cannot tell."""
    with suppress(AttributeError, OSError):  # Linux alone has the function
        return os.sched_getaffinity(0)
    return set()


_ALL = _allowed()  # at the start of this process


@contextmanager
def one_cpu() -> Iterator[None]:
    """Within, the calling thread stays on the CPU that it is on; so do the threads that it starts.

    It is one that had room: the system has chosen it. Where the system does not tell it, or allows
    no such thing, threads go where they are sent, as they would without.
    """
    with _on({_current()} & _ALL):
        yield


@contextmanager
def every_cpu() -> Iterator[None]:
    """Within, what the calling thread starts may run wherever this process might at its start."""
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
        said = Path("/proc/thread-self/stat").read_text(encoding="utf-8", errors="replace")
        return int(said.rpartition(")")[2].split()[_FIELD])
    except (OSError, ValueError, IndexError):
        return -1
