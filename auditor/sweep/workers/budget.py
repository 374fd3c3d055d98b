"""The budget of requests that the threads of a process share: the Hub's own count, and a limit."""

import time
from collections.abc import Callable, Mapping
from math import inf
from threading import Lock
from typing import NamedTuple

from auditor.downloader.http import NO_ANSWER, Turn
from auditor.downloader.retry import WINDOW, RateLimit, rate_limit
from auditor.downloader.waits import STEP, Wait

# Kept back of each window for whatever else uses the same token: a twentieth, 50 at most.
_SPARED, _MOST_SPARED = 20, 50

_ROUNDING = 1.0  # seconds: `t` is whole, so that the window may last so much longer
_LOOK = 0.25  # seconds between looks at what came of the first request of a window
_GIVEN_UP = 30.0  # seconds after which another request goes first: who sent that one has died

_REFUSED = frozenset((NO_ANSWER, 429, *range(500, 600)))  # after these no other request may go


class RateWindow(NamedTuple):
    """What is known of the window of one kind of requests.

    Of the next window, when one is over, nothing is known, nor of the first one. So one request
    goes first, and the others follow when it has succeeded.
    """

    left: float = 0.0  # requests; inf: the server does not say, as mirrors do not
    until: float = -inf  # when it ends; inf: as above
    quota: float = 0.0  # requests of a whole one
    first: float = 0.0  # when the request went that others wait for; 0: no such request
    least: float = inf  # requests that were left for all, by the answers so far

    def is_over(self, now: float) -> bool:
        return now >= self.until + _ROUNDING

    def wait(self, now: float) -> float:
        """Seconds until a request may go; 0: now."""
        if self.is_over(now):
            return _LOOK if self.first and now < self.first + _GIVEN_UP else 0.0
        is_spent = self.left <= spared(self.quota)
        return self.until + _ROUNDING - now if is_spent else 0.0

    def spent(self, now: float) -> "RateWindow":
        """After a request was let through."""
        first = now if self.is_over(now) else self.first
        return self._replace(left=self.left - 1, first=first)

    def lost(self, first: float) -> "RateWindow":
        """The request that went first at that time has come to nothing: another one may."""
        return self._replace(first=0.0) if first and first == self.first else self

    def told(self, limit: RateLimit, now: float, share: int = 1) -> "RateWindow":
        """After an answer that says what is left; of that, one `share`-th is ours."""
        until = now + limit.ask_again
        goes_on = self.until < inf and not self.is_over(now)
        if goes_on and until < self.until - 2 * _ROUNDING:
            return self  # of a window before this one
        same = goes_on and until <= self.until + 2 * _ROUNDING
        if same and limit.remaining > self.least:
            return self  # an answer that others have overtaken
        # A share is taken anew of what is left for all: none is lost with a worker that idles.
        left = limit.remaining // share
        quota = max(1, limit.quota // share) if limit.quota else 0
        return RateWindow(
            left=min(self.left, left) if same and share == 1 else left,
            until=max(until, self.until) if same else until,
            quota=quota or max(self.quota, left),
            least=limit.remaining,
        )

    def untold(self, now: float, *, asked: bool) -> "RateWindow":
        """After an answer without the headers: what was never told is not waited for.

        Nor what is told no more, if it was this kind that was `asked` for.
        """
        if self.until == -inf or (asked and self.is_over(now)):
            return self._replace(left=inf, until=inf)
        return self


def opens(status: int, limit: RateLimit | None) -> bool:
    """Whether an answer to the first request lets the others follow, or says until when not."""
    return status not in _REFUSED or (limit is not None and limit.remaining == 0)


def spared(quota: float) -> float:
    """Requests of a window's quota that are left to others."""
    return min(quota // _SPARED, _MOST_SPARED)


_KINDS = ("api", "resolvers")
_OWN = len(_KINDS)  # beside the kinds: what else is waited for
_WHY = (
    "the budget of requests to the Hub's API is spent",
    "the budget of requests for files is spent",
    "the requests of --max-requests are spent",
)
Pause = Callable[[Wait | None, float], None]  # sleeps for a step of a wait; None: it has ended


class Budget:
    """Lets requests through as the Hub's RateLimit headers and `most` in five minutes allow.

    If others that share no memory with it spend the same quota (a cluster's workers), it is divided
    by their number.
    """

    def __init__(
        self, most: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = Lock()
        self._windows = [RateWindow() for _ in _KINDS]
        self._most = most
        self._own_since, self._own_spent = 0.0, 0  # when our own window began; requests in it
        self.share = 1  # one such part is ours of all that there is: what is left, quota, `most`
        self._clock = clock

    def take(self, path: str, rest: Pause) -> Turn:
        """Wait until a request may go; in steps, so that a window that others open is seen."""
        waited = 0.0
        while isinstance(turn := self._turn(path, waited), Wait):
            step = min(turn.seconds, STEP)
            rest(turn, step)
            waited += step
        if waited:
            rest(None, 0.0)
        return turn

    def _turn(self, path: str, waited: float) -> Turn | Wait:
        kind = _kind_of(path)
        with self._lock:
            now, window = self._clock(), self._windows[kind]
            seconds, what = max((window.wait(now), kind), (self._own_wait(now), _OWN))
            if seconds > 0:
                return Wait(_WHY[what], seconds)
            self._windows[kind] = window.spent(now)
            self._own_spent += 1
            return Turn(path, first=now if window.is_over(now) else 0.0, waited=waited)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        """What an answer of the Hub says of its window; NO_ANSWER: there was none."""
        limit = rate_limit(headers)
        asked = told = _kind_of(turn.path)
        tells = limit is not None and limit.kind in {None, *_KINDS}
        if limit and limit.kind in _KINDS:
            told = _KINDS.index(limit.kind)
        with self._lock:
            now, windows = self._clock(), self._windows
            if not opens(status, limit) and (windows[told].is_over(now) or not tells):
                windows[asked] = windows[asked].lost(turn.first)
                return
            if limit and tells:
                windows[told] = windows[told].told(limit, now, self.share)
            if not tells or told != asked:
                windows[:] = [
                    window.untold(now, asked=at == asked) for at, window in enumerate(windows)
                ]

    def _own_wait(self, now: float) -> float:
        if self._most is None:
            return 0.0
        most = max(1, self._most // self.share)
        if not self._own_since or now >= self._own_since + WINDOW:
            self._own_since, self._own_spent = now, 0
        return self._own_since + WINDOW - now if self._own_spent >= most else 0.0


def _kind_of(path: str) -> int:
    return int("/resolve/" in path)
