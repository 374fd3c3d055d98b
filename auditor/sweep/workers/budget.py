"""The budget of requests that all processes of a sweep share: the Hub's own count, and a limit."""

import time
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager, suppress
from multiprocessing.context import BaseContext

from auditor.downloader.rate_limits import WINDOW, rate_limit
from auditor.downloader.request_budget import Turn
from auditor.downloader.waits import STEP, Wait
from auditor.sweep.workers.windows import RateWindow, opens, spared

__all__ = ["WINDOW", "Budget", "spared"]

_KINDS = ("api", "resolvers")
_OWN, _HELD = len(_KINDS), len(_KINDS) + 1  # beside the kinds: what else is waited for
_WHY = (
    "the budget of requests to the Hub's API is spent",
    "the budget of requests for files is spent",
    "the requests of --max-requests are spent",
    "a server asks for patience",
)
Numbers = MutableSequence[float]  # in memory that processes share
Rest = Callable[[Wait | None, float], None]  # sleeps for a step of a wait; None: it has ended

_ABANDONED = 0.5  # seconds


class Budget:
    """Lets requests through as the Hub's RateLimit headers and `most` in five minutes allow.

    Shared by processes: it is handed to each as it is started. If others that share no memory with
    it spend the same quota (a cluster's workers), it is divided by their number.
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
        self._kinds = tuple(context.RawArray("d", len(RateWindow._fields)) for _ in _KINDS)
        self._own = context.RawArray("d", 2)  # when our own window began, and requests in it
        self._until = context.RawArray("d", len(_WHY))  # the ends of waits, by what is waited for
        self._most = most
        self._share = 1
        self._clock = clock
        self._sleep = sleep

    def divide(self, share: int) -> None:
        """From now on, one `share`-th of all that there is: what is left, the quota, `most`."""
        self._share = max(1, share)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process counts meanwhile, unless this one dies in the middle of it.

        A process that is killed releases nothing. Counting takes microseconds, so a lock that is
        held for longer belongs to a killed process, and is released for it.
        """
        self._lock.acquire(timeout=_ABANDONED)
        try:
            yield
        finally:
            with suppress(ValueError):  # another one who waited as long has given it back already
                self._lock.release()

    def take(self, path: str, rest: Rest | None = None) -> Turn:
        """Wait until a request may go; in steps, so that a window that others open is seen."""
        rest, waited = rest or self._rest, 0.0
        while True:
            turn = self._turn(path, waited)
            if isinstance(turn, Turn):
                if waited:
                    rest(None, 0.0)
                return turn
            step = min(turn.seconds, STEP)
            rest(turn, step)
            waited += step

    def _turn(self, path: str, waited: float) -> Turn | Wait:
        kind = _kind_of(path)
        with self._alone():
            now, window = self._clock(), RateWindow(*self._kinds[kind])
            seconds, what = max((window.wait(now), kind), (self._own_wait(), _OWN))
            if seconds > 0:
                self._until[what] = now + seconds
                return Wait(_WHY[what], seconds)
            self._kinds[kind][:] = window.spent(now)
            self._own[1] += 1
            if waited:
                self._until[kind] = self._until[_OWN] = 0.0  # perhaps earlier than it was said
            return Turn(path, first=now if window.is_over(now) else 0.0, waited=waited)

    def _rest(self, wait: Wait | None, step: float) -> None:
        if wait:
            self._sleep(step)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        """What an answer of the Hub says of its window."""
        limit = rate_limit(headers)
        asked = _kind_of(turn.path)
        kind = _KINDS.index(limit.kind) if limit and limit.kind in _KINDS else asked
        with self._alone():
            now, windows = self._clock(), [RateWindow(*numbers) for numbers in self._kinds]
            tells = limit is not None and limit.kind in {None, *_KINDS}
            if not opens(status, limit) and (windows[kind].is_over(now) or not tells):
                windows[kind] = windows[kind].lost(turn.first)
            elif limit and tells:
                windows[kind] = windows[kind].told(limit, now, self._share)
            else:
                windows = [
                    window.untold(now, asked=at == kind) for at, window in enumerate(windows)
                ]
            for numbers, window in zip(self._kinds, windows, strict=True):
                numbers[:] = window

    def lost(self, turn: Turn) -> None:
        """A request has had no answer."""
        if turn.first:
            with self._alone():
                numbers = self._kinds[_kind_of(turn.path)]
                numbers[:] = RateWindow(*numbers).lost(turn.first)

    def hold(self, seconds: float) -> None:
        """Someone waits so long because a server asked for it: `waiting` says so."""
        with self._alone():
            self._until[_HELD] = max(self._until[_HELD], self._clock() + seconds)

    def waiting(self) -> Wait | None:
        """What is waited for longest, and how long yet; None: no request waits."""
        seconds, what = max((until - self._clock(), what) for what, until in enumerate(self._until))
        return Wait(_WHY[what], seconds) if seconds > 0 else None

    def blocked(self) -> float:
        """Seconds until requests go on; 0: no request waits."""
        wait = self.waiting()
        return wait.seconds if wait else 0.0

    def _own_wait(self) -> float:
        if self._most is None:
            return 0.0
        now = self._clock()
        if not self._own[0] or now >= self._own[0] + WINDOW:
            self._own[:] = [now, 0.0]
        most = max(1, self._most // self._share)
        return self._own[0] + WINDOW - now if self._own[1] >= most else 0.0


def _kind_of(path: str) -> int:
    return int("/resolve/" in path)
