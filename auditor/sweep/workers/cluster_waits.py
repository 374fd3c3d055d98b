"""How long a cluster waits for the budget: what a worker tells, and what a client makes of it.

Each worker has a share of the budget, and so a wait of its own. A wait is told as seconds, which
whoever hears of it counts down: clocks of two machines are never compared.
"""

import math
import time
from collections.abc import Callable, Iterable
from threading import Lock

_CHANGE = 1.0  # seconds; the Hub's `t` is whole, so that a wait that is the same may differ by less
_EVERY = 1.0  # seconds between two tellings


class News:
    """What a client was told of one worker's wait; the threads of the worker share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._until = self._told = -math.inf

    def is_due(self, seconds: float) -> bool:
        """Whether to tell of a wait of that many seconds; if so, it counts as told."""
        with self._lock:
            now = self._clock()
            believed = max(0.0, self._until - now)
            if abs(seconds - believed) < _CHANGE or now - self._told < _EVERY:
                return False
            self._until, self._told = now + seconds, now
            return True


class ClusterWaits:
    """What the workers told; a thread may tell while another asks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}  # by worker; one that never waited is not there

    def told(self, worker: str, seconds: float) -> None:
        self._until[worker] = self._clock() + seconds

    def forget(self, workers: Iterable[str]) -> None:
        """These are gone; another may have the address of one."""
        for worker in workers:
            self._until.pop(worker, None)

    def shortest(self, working: Iterable[str]) -> float:
        """Seconds until the first of these workers goes on; 0: one does not wait, or none works."""
        now = self._clock()
        left = (self._until.get(worker, now) - now for worker in working)
        return max(0.0, min(left, default=0.0))
