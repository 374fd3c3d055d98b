"""The budget of requests that the threads of a process share: the Hub's own count, and a limit."""

import time
from collections.abc import Callable, Mapping
from threading import Lock

from auditor.downloader.rate_limits import WINDOW, rate_limit
from auditor.downloader.request_budget import Turn
from auditor.downloader.waits import STEP, Wait
from auditor.sweep.workers.windows import RateWindow, opens, spared

__all__ = ["WINDOW", "Budget", "spared"]

_KINDS = ("api", "resolvers")
_FILES = _KINDS.index("resolvers")
_OWN, _HELD = len(_KINDS), len(_KINDS) + 1  # beside the kinds: what else is waited for
_WHY = (
    "the budget of requests to the Hub's API is spent",
    "the budget of requests for files is spent",
    "the requests of --max-requests are spent",
    "a server asks for patience",
)
Pause = Callable[[Wait | None, float], None]  # sleeps for a step of a wait; None: it has ended


class Budget:
    """Lets requests through as the Hub's RateLimit headers and `most` in five minutes allow.

    If others that share no memory with it spend the same quota (a cluster's workers), it is divided
    by their number.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lock = Lock()
        self._windows = [RateWindow() for _ in _KINDS]
        self._most = most
        self._own_since, self._own_spent = 0.0, 0  # when our own window began; requests in it
        self._until = [0.0] * len(_WHY)  # the ends of waits, by what is waited for
        self._share = 1
        self._clock = clock
        self._sleep = sleep
        self._is_short = False  # a request for a file had to wait for the end of a window
        self.files = 0  # requests for files that were let through

    def divide(self, share: int) -> None:
        """From now on, one `share`-th of all that there is: what is left, the quota, `most`."""
        self._share = max(1, share)

    @property
    def rate(self) -> float | None:
        """Requests for files a second that can go on for ever; None: as many as can be made.

        While no window has been spent: what is left of this one may be all that is needed.
        """
        if not self._is_short:
            return None
        window, own = self._windows[_FILES], self._own_most
        whole = [window.quota - spared(window.quota)] if window.quota else []
        return min([*whole, *([own] if own else [])], default=0.0) / WINDOW or None

    @property
    def _own_most(self) -> int | None:
        return None if self._most is None else max(1, self._most // self._share)

    def take(self, path: str, rest: Pause | None = None) -> Turn:
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
        with self._lock:
            now, window = self._clock(), self._windows[kind]
            seconds, what = max((window.wait(now), kind), (self._own_wait(now), _OWN))
            if seconds > 0:
                self._until[what] = now + seconds
                self._is_short |= kind == _FILES and (what == _OWN or window.is_spent(now))
                return Wait(_WHY[what], seconds)
            self._windows[kind] = window.spent(now)
            self._own_spent += 1
            self.files += kind == _FILES
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
        with self._lock:
            now, windows = self._clock(), self._windows
            tells = limit is not None and limit.kind in {None, *_KINDS}
            if not opens(status, limit) and (windows[kind].is_over(now) or not tells):
                windows[kind] = windows[kind].lost(turn.first)
            elif limit and tells:
                windows[kind] = windows[kind].told(limit, now, self._share)
            else:
                windows[:] = [
                    window.untold(now, asked=at == kind) for at, window in enumerate(windows)
                ]

    def lost(self, turn: Turn) -> None:
        """A request has had no answer."""
        if turn.first:
            with self._lock:
                kind = _kind_of(turn.path)
                self._windows[kind] = self._windows[kind].lost(turn.first)

    def hold(self, seconds: float) -> None:
        """Someone waits so long because a server asked for it: `waiting` says so."""
        with self._lock:
            self._until[_HELD] = max(self._until[_HELD], self._clock() + seconds)

    def waiting(self) -> Wait | None:
        """What is waited for longest, and how long yet; None: no request waits."""
        seconds, what = max((until - self._clock(), what) for what, until in enumerate(self._until))
        return Wait(_WHY[what], seconds) if seconds > 0 else None

    def blocked(self) -> float:
        """Seconds until requests go on; 0: no request waits."""
        wait = self.waiting()
        return wait.seconds if wait else 0.0

    def _own_wait(self, now: float) -> float:
        most = self._own_most
        if most is None:
            return 0.0
        if not self._own_since or now >= self._own_since + WINDOW:
            self._own_since, self._own_spent = now, 0
        return self._own_since + WINDOW - now if self._own_spent >= most else 0.0


def _kind_of(path: str) -> int:
    return int("/resolve/" in path)
