"""What a process remembers of the models that it has seen, within bounds."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by digest: those that were asked for last, as many as fit; thread-safe."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """The largest number of bytes of all values together, and of one."""
        self._most, self._most_of_one = most, most_of_one
        self._lock = Lock()
        self._known: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, digest: bytes) -> T | None:
        with self._lock:
            known = self._known.get(digest)
            if known is None:
                return None
            self._known.move_to_end(digest)
            return known[0]

    def put(self, digest: bytes, value: T, size: int) -> None:
        """Remember a value of that many bytes, unless that is too much for one."""
        if size > self._most_of_one:
            return
        with self._lock:
            if digest in self._known:
                return
            self._known[digest] = value, size
            self._size += size
            while self._size > self._most:
                _, (_, gone) = self._known.popitem(last=False)
                self._size -= gone
