"""The budget of requests that the threads of a process share: the Hub's own count, and a limit."""

import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from math import inf
from threading import Lock
from typing import NamedTuple

from auditor.downloader.rate_limits import WINDOW, RateLimit, rate_limit
from auditor.downloader.request_budget import Turn
from auditor.downloader.waits import STEP, Wait

# Kept back of each window for whatever else uses the same token: a twentieth, 50 at most.
_SPARED, _MOST_SPARED = 20, 50

_PROBE = 0.25  # seconds between requests while the Hub has not said what is left
_ROUNDING = 1.0  # seconds: `t` is whole, so that the window may last so much longer
_LOOK = 0.25  # seconds between looks at what came of the first request of a window
_GIVEN_UP = 30.0  # seconds after which another request goes first: who sent that one has died

_REFUSED = frozenset((429, *range(500, 600)))  # statuses after which no other request may go


class WindowState(IntEnum):
    """How much is known of a window."""

    NOTHING = 0
    TOLD = 1
    UNTOLD = 2  # the server tells nothing, as mirrors do


class RateWindow(NamedTuple):
    """What is known of the window of one kind of requests.

    When a window that was told is over, the quota of the next one is not known. So one request goes
    first, and the others follow when it has succeeded.
    """

    state: WindowState = WindowState.NOTHING
    left: float = 0.0  # requests
    until: float = 0.0  # when it ends
    quota: float = 0.0  # requests of a whole one
    asked: float = 0.0  # when a request was last let through
    first: float = 0.0  # when the request went that others wait for; 0: no such request
    least: float = inf  # requests that were left for all, by the answers so far

    def is_over(self, now: float) -> bool:
        return self.state == WindowState.TOLD and now >= self.until + _ROUNDING

    def is_spent(self, now: float) -> bool:
        """Whether nothing is left of it for us, and it goes on."""
        told = self.state == WindowState.TOLD
        return told and not self.is_over(now) and self.left <= spared(self.quota)

    def wait(self, now: float) -> float:
        """Seconds until a request may go; 0: now."""
        if self.state == WindowState.NOTHING:
            return max(0.0, self.asked + _PROBE - now) if self.asked else 0.0
        if self.state == WindowState.UNTOLD:
            return 0.0
        if self.is_over(now):
            return _LOOK if self.first and now < self.first + _GIVEN_UP else 0.0
        if self.left > spared(self.quota):
            return 0.0
        return self.until + _ROUNDING - now

    def spent(self, now: float) -> "RateWindow":
        """After a request was let through."""
        first = now if self.is_over(now) else self.first
        return self._replace(left=self.left - 1, asked=now, first=first)

    def lost(self, first: float) -> "RateWindow":
        """The request that went first at that time has come to nothing: another one may."""
        return self._replace(first=0.0) if first and first == self.first else self

    def told(self, limit: RateLimit, now: float, share: int = 1) -> "RateWindow":
        """After an answer that says what is left; of that, one `share`-th is ours."""
        until = now + limit.ask_again
        known = self.state == WindowState.TOLD
        if known and until < self.until - 2 * _ROUNDING and not self.is_over(now):
            return self  # of a window before this one
        same = known and until <= self.until + 2 * _ROUNDING and not self.is_over(now)
        if same and limit.remaining > self.least:
            return self  # an answer that others have overtaken
        # A share is taken anew of what is left for all: none is lost with a worker that idles.
        left = limit.remaining // share
        quota = max(1, limit.quota // share) if limit.quota else 0
        return RateWindow(
            state=WindowState.TOLD,
            left=min(self.left, left) if same and share == 1 else left,
            until=max(until, self.until) if same else until,
            quota=quota or max(self.quota, left),
            asked=self.asked,
            least=limit.remaining,
        )

    def untold(self, now: float, *, asked: bool) -> "RateWindow":
        """After an answer without the headers: what was never told is not waited for.

        Nor what is told no more, if it was this kind that was `asked` for.
        """
        if self.state == WindowState.NOTHING or (asked and self.is_over(now)):
            return self._replace(state=WindowState.UNTOLD, first=0.0)
        return self


def opens(status: int, limit: RateLimit | None) -> bool:
    """Whether an answer to the first request lets the others follow, or says until when not."""
    return status not in _REFUSED or (limit is not None and limit.remaining == 0)


def spared(quota: float) -> float:
    """Requests of a window's quota that are left to others."""
    return min(quota // _SPARED, _MOST_SPARED)


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
