"""Room in the address space for libraries that end the process if memory is refused to them."""

import mmap


def require_address_space(size: int) -> None:
    """Raise MemoryError unless this process may reserve `size` more bytes now."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, ValueError):
        raise MemoryError from None
