"""A gate before what takes memory: whoever does not fit waits until another one leaves."""

import time
from threading import Condition


class ByteGate:
    """Lets in as many bytes as fit, and what does not fit alone; thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: dict[object, int] = {}
        self._changed = Condition()

    def enter(self, who: object, size: int) -> float:
        """Wait until it fits, unless `who` is inside; the seconds that took."""
        since = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._fits(who, size))
            self._inside.setdefault(who, size)
        return time.monotonic() - since

    def leave(self, who: object) -> None:
        """`who` need not be inside."""
        with self._changed:
            if self._inside.pop(who, None) is not None:
                self._changed.notify_all()

    def _fits(self, who: object, size: int) -> bool:
        inside = self._inside
        return not inside or who in inside or sum(inside.values()) + size <= self._most
