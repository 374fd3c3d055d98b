"""The CPUs and the address space of this process."""

import mmap
import os


def cpu_count() -> int:
    """Return the number of CPUs that this process may use; all CPUs if that is unknown."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # only Linux has the function
        return os.cpu_count() or 1


def require_address_space(size: int) -> None:
    """Raise MemoryError unless this process may reserve `size` more bytes now.

    Call it before using a library that ends the process if it gets no memory.
    """
    try:
        mmap.mmap(-1, size).close()
    except (OSError, ValueError):
        raise MemoryError from None
