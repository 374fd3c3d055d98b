"""A bound on memory while a judge reads hostile bytes: one opcode asks CPython for gigabytes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MORE = 512 * 1024 * 1024  # bytes of address space beyond what the process has


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Whatever asks for more gets a MemoryError, at once and not after zeros are written to it."""
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MORE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
