"""The budget of requests that all processes of a sweep share: the Hub's own count, and a limit."""

import time
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from multiprocessing.context import BaseContext

from auditor.downloader.rate_limits import rate_limit

WINDOW = 300.0  # seconds; the Hub counts in windows of five minutes
_KINDS = ("api", "resolvers")
Numbers = MutableSequence[float]  # in memory that processes share

# Kept back of each window for whatever else uses the same token: a twentieth, 50 at most.
_SPARED, _MOST_SPARED = 20, 50
_PROBE = 0.25  # seconds between requests while the Hub has not said what is left
_ROUNDING = 1.0  # seconds: `t` is whole, so that the window may last so much longer
_STEP = 1.0  # seconds of one sleep: a window that others open earlier is seen
_ABANDONED = 0.5  # seconds


class _Field(IntEnum):
    """Where a kind's numbers stand in the shared array."""

    LEFT = 0  # requests of this window
    UNTIL = 1  # when it ends, on the monotonic clock that all processes share
    QUOTA = 2  # of a window
    PROBED = 3  # when a request was let through unknowing
    STATE = 4


class _State(IntEnum):
    """How much is known of a kind's window."""

    NOTHING = 0
    TOLD = 1
    ASSUMED = 2  # the window that was told is over; another of the same quota has begun
    UNTOLD = 3  # the server tells nothing, as mirrors do


class Budget:
    """Lets requests through as the Hub's RateLimit headers and `most` in five minutes allow.

    Shared by processes: it is handed to each as it is started. Where the others that spend the same
    quota share no memory (a cluster's workers), it is divided among so many.
    """

    def __init__(
        self,
        context: BaseContext,
        most: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lock = context.Lock()
        self._kinds = tuple(context.RawArray("d", len(_Field)) for _ in _KINDS)
        self._own = context.RawArray("d", 2)  # when our own window began, and requests in it
        self._resumes = context.RawValue("d", 0.0)
        self._most = most
        self._share = 1
        self._clock = clock
        self._sleep = sleep

    def divide(self, share: int) -> None:
        """From now on, one `share`-th of all that there is: what is left, the quota, `most`."""
        self._share = max(1, share)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else counts meanwhile, unless whoever did has died in the middle of it.

        A process that is killed releases nothing; counting takes microseconds, so that a lock
        which is held for longer is nobody's, and is given back for it.
        """
        self._lock.acquire(timeout=_ABANDONED)
        try:
            yield
        finally:
            with suppress(ValueError):  # another one who waited as long has given it back already
                self._lock.release()

    def take(self, path: str) -> float:
        """Wait until a request may go; the seconds waited."""
        numbers = self._kinds["/resolve/" in path]
        waited = 0.0
        while True:
            with self._alone():
                wait = max(self._wait(numbers), self._own_wait())
                if wait <= 0:
                    self._spend(numbers)
                    if waited:
                        self._resumes.value = 0.0  # perhaps earlier than it was said
                    return waited
                self._resumes.value = self._clock() + wait
            step = min(wait, _STEP)
            self._sleep(step)
            waited += step

    def note(self, headers: Mapping[str, str]) -> None:
        """What an answer of the Hub says of its window."""
        limit = rate_limit(headers)
        if limit is None or limit.kind not in _KINDS:
            self._untold()
            return
        until = self._clock() + limit.reset
        with self._alone():
            numbers = self._kinds[_KINDS.index(limit.kind)]
            state, known = numbers[_Field.STATE], numbers[_Field.UNTIL]
            if state == _State.TOLD and until < known - 2 * _ROUNDING:
                return  # of a window that is over
            same = state == _State.TOLD and until <= known + 2 * _ROUNDING
            # A share is taken anew of what is left for all: none is lost with a worker that idles.
            counted = (same or state == _State.ASSUMED) and self._share == 1
            left = limit.remaining // self._share
            quota = max(1, limit.quota // self._share) if limit.quota else 0
            numbers[_Field.LEFT] = min(numbers[_Field.LEFT], left) if counted else left
            numbers[_Field.UNTIL] = max(until, known) if same else until
            numbers[_Field.QUOTA] = quota or max(numbers[_Field.QUOTA], left)
            numbers[_Field.STATE] = _State.TOLD

    def hold(self, seconds: float) -> None:
        """Someone waits so long because a server asked for it: `blocked` says so."""
        with self._alone():
            self._resumes.value = max(float(self._resumes.value), self._clock() + seconds)

    def blocked(self) -> float:
        """Seconds until requests go on; 0: nobody waits."""
        return max(0.0, float(self._resumes.value) - self._clock())

    def _untold(self) -> None:
        """An answer without the headers: of a mirror. What was never told is not waited for."""
        with self._alone():
            for numbers in self._kinds:
                if numbers[_Field.STATE] == _State.NOTHING:
                    numbers[_Field.STATE] = _State.UNTOLD

    def _wait(self, numbers: Numbers) -> float:
        now, state = self._clock(), numbers[_Field.STATE]
        if state == _State.NOTHING:
            return numbers[_Field.PROBED] + _PROBE - now if numbers[_Field.PROBED] else 0.0
        if state == _State.UNTOLD:
            return 0.0
        if now >= numbers[_Field.UNTIL] + _ROUNDING:
            numbers[_Field.LEFT] = numbers[_Field.QUOTA]
            numbers[_Field.UNTIL] = now + WINDOW
            numbers[_Field.STATE] = _State.ASSUMED
        if numbers[_Field.LEFT] > spared(numbers[_Field.QUOTA]):
            return 0.0
        return numbers[_Field.UNTIL] + _ROUNDING - now

    def _own_wait(self) -> float:
        if self._most is None:
            return 0.0
        now = self._clock()
        if not self._own[0] or now >= self._own[0] + WINDOW:
            self._own[:] = [now, 0.0]
        most = max(1, self._most // self._share)
        return self._own[0] + WINDOW - now if self._own[1] >= most else 0.0

    def _spend(self, numbers: Numbers) -> None:
        numbers[_Field.LEFT] -= 1
        numbers[_Field.PROBED] = self._clock()
        self._own[1] += 1


def spared(quota: float) -> float:
    """Requests of a window's quota that are left to others."""
    return min(quota // _SPARED, _MOST_SPARED)
