"""One CPU for threads of which the interpreter runs one at a time.

Threads on several CPUs hand the interpreter, and all that it works on, from one CPU to another: a
tenth of the processor time of a sweep behind 150 ms, and a fifth of one close by.
"""

import os
from contextlib import suppress
from pathlib import Path

_FIELD = 36  # of /proc/thread-self/stat after the name: field 39 of proc(5), the CPU of a thread


def own_cpu() -> int | None:
    """The CPU that the caller runs on; None: this system does not say, or cannot be told.

    It is one that has room: the system has chosen it, and does not choose one that is taken.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        said = Path("/proc/thread-self/stat").read_text(encoding="utf-8", errors="replace")
        return int(said.rpartition(")")[2].split()[_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def stay_on(cpu: int | None) -> None:
    """Keep the calling thread, and those that it starts, on that CPU; None: wherever it is run.

    Where the system does not allow that, the thread goes where it is sent, as it would without.
    """
    if cpu is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, {cpu})
