"""A bounded memory of values by digest, shared by the threads of one process."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

# Bytes of all remembered values. A packed outcome of BERT has 4.6 kB, its packed headers 3.2 kB:
# outcomes of some 900 base models fit, or headers of some 1,300.
_MOST = 4 * 1024 * 1024
_MOST_OF_ONE = 256 * 1024


class Recent(Generic[T]):
    """A cache of the most recently used values, limited in bytes; thread-safe."""

    def __init__(self, most: int = _MOST, most_of_one: int = _MOST_OF_ONE) -> None:
        """Set the largest number of bytes of all values together, and of one value."""
        self._most, self._most_of_one = most, most_of_one
        self._lock = Lock()
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, digest: bytes) -> T | None:
        with self._lock:
            entry = self._values.get(digest)
            if entry is None:
                return None
            self._values.move_to_end(digest)
            return entry[0]

    def put(self, digest: bytes, value: T, size: int) -> None:
        """Remember a value of that many bytes, unless it is too large."""
        if size > self._most_of_one:
            return
        with self._lock:
            if digest in self._values:
                return
            self._values[digest] = value, size
            self._size += size
            while self._size > self._most:
                _, (_, removed) = self._values.popitem(last=False)
                self._size -= removed
