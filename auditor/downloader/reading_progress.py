"""How far the reading of many headers has come, for a terminal that shows it."""

import time
from collections.abc import Callable

_SOON = 1.0  # seconds that are not worth a word
_STEP = 0.1  # seconds between two words


class ReadingProgress:
    """Tells how many headers of how many are read, once that takes more than a second."""

    def __init__(
        self,
        show: Callable[[str | None], None],
        received: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`show` gets a line, or None when there is nothing to show; `received` counts bytes."""
        self._show = show
        self._received = received
        self._clock = clock
        self._since = clock()
        self._told = self._since + _SOON - _STEP

    def __call__(self, done: int, of: int) -> None:
        """Shows how many headers are read, at most once in a while."""
        now = self._clock()
        if done == of:
            self._show(None)
        elif done and now - self._told >= _STEP:
            self._told = now
            left = (now - self._since) / done * (of - done)
            size = f"{self._received() / 1e6:,.1f} MB"
            self._show(f"{done:,} of {of:,} headers read, {size}; {left:.0f} s left")


class Pace:
    """Tells how many of how many bytes are read and how fast, once that takes over a second."""

    def __init__(
        self,
        show: Callable[[str | None], None],
        of: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._of = of
        self._clock = clock
        self._since = clock()
        self._told = self._since + _SOON - _STEP

    def __call__(self, done: int) -> None:
        now = self._clock()
        if not done or now - self._told < _STEP:
            return
        self._told = now
        speed = done / (now - self._since)
        left = (self._of - done) / speed
        self._show(
            f"{done / 1e9:,.1f} of {self._of / 1e9:,.1f} GB of numbers read, "
            f"{speed / 1e9:.1f} GB/s; {left:.0f} s left"
        )
