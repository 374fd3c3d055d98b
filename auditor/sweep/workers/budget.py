"""The request budget that a process's threads share: the Hub's rate limits, and --max-requests."""

import time
from collections.abc import Callable, Mapping
from math import inf
from threading import Lock
from typing import NamedTuple

from auditor.downloader.http import NO_ANSWER, Turn
from auditor.downloader.retry import WINDOW, RateLimit, rate_limit
from auditor.downloader.waits import STEP, Wait

# Each window leaves a twentieth of its requests, 50 at most, to other users of the token.
_SPARED, _MOST_SPARED = 20, 50

_ROUNDING = 1.0  # seconds: the header's `t` is in whole seconds, so a window may last longer
_LOOK = 0.25  # seconds between checks for the answer to the first request of a window
_GIVEN_UP = 30.0  # seconds without an answer after which another request is sent as the first

_REFUSED = frozenset((NO_ANSWER, 429, *range(500, 600)))  # other requests keep waiting after these


class RateWindow(NamedTuple):
    """The state of the rate-limit window of one kind of requests.

    The size of a new window is unknown until an answer arrives. So one request is sent first, and
    the others wait until it has succeeded.
    """

    left: float = 0.0  # remaining requests; inf: the server sends no limits, as mirrors do
    until: float = -inf  # end of the window; inf: the server sends no limits
    quota: float = 0.0  # requests of a complete window
    first: float = 0.0  # send time of the first request, for whose answer others wait; 0: not sent
    least: float = inf  # the lowest number of remaining requests that an answer has reported

    def is_over(self, now: float) -> bool:
        return now >= self.until + _ROUNDING

    def wait(self, now: float) -> float:
        """Return the seconds until a request may be sent; 0 means now."""
        if self.is_over(now):
            return _LOOK if self.first and now < self.first + _GIVEN_UP else 0.0
        is_spent = self.left <= spared(self.quota)
        return self.until + _ROUNDING - now if is_spent else 0.0

    def spent(self, now: float) -> "RateWindow":
        """Return the state after one more request was admitted."""
        first = now if self.is_over(now) else self.first
        return self._replace(left=self.left - 1, first=first)

    def lost(self, first: float) -> "RateWindow":
        """Return the state after the first request, sent at `first`, has failed: send another."""
        return self._replace(first=0.0) if first and first == self.first else self

    def after_limit(self, limit: RateLimit, now: float, share: int = 1) -> "RateWindow":
        """Return the state after an answer with rate-limit headers.

        This process may use 1/`share` of the remaining requests.
        """
        until = now + limit.ask_again
        goes_on = self.until < inf and not self.is_over(now)
        if goes_on and until < self.until - 2 * _ROUNDING:
            return self  # the answer belongs to an earlier window
        is_same_window = goes_on and until <= self.until + 2 * _ROUNDING
        if is_same_window and limit.remaining > self.least:
            return self  # a later answer arrived first
        # Each answer divides the remaining requests anew: the share of an idle worker is not lost.
        left = limit.remaining // share
        quota = max(1, limit.quota // share) if limit.quota else 0
        return RateWindow(
            left=min(self.left, left) if is_same_window and share == 1 else left,
            until=max(until, self.until) if is_same_window else until,
            quota=quota or max(self.quota, left),
            least=limit.remaining,
        )

    def after_no_limit(self, now: float, *, is_requested: bool) -> "RateWindow":
        """Return the state after an answer without rate-limit headers for this kind.

        The window becomes unlimited if no earlier answer had headers for it, or if the window is
        over and this answer is to a request of its kind: the server has stopped sending headers.
        """
        if self.until == -inf or (is_requested and self.is_over(now)):
            return self._replace(left=inf, until=inf)
        return self


def opens(status: int, limit: RateLimit | None) -> bool:
    """Whether the answer to a window's first request lets other requests proceed.

    It does if it is not a refusal, or if its headers state that the window has no requests left:
    then the others wait for the next window.
    """
    return status not in _REFUSED or (limit is not None and limit.remaining == 0)


def spared(quota: float) -> float:
    """Return the number of requests of a quota that are left to other users of the token."""
    return min(quota // _SPARED, _MOST_SPARED)


_KINDS = ("api", "resolvers")
_OWN = len(_KINDS)  # index of --max-requests in _REASONS, after the kinds
_REASONS = (
    "the budget of requests to the Hub's API is spent",
    "the budget of requests for files is spent",
    "the requests of --max-requests are spent",
)
Pause = Callable[[Wait | None, float], None]  # sleeps for a step of a wait; None: the wait is over


class Budget:
    """A gate that admits requests within the Hub's rate limits, at most `most` in five minutes.

    If other processes spend the same quota (workers of a cluster), it is divided by their number.
    """

    def __init__(
        self, most: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = Lock()
        self._windows = [RateWindow() for _ in _KINDS]
        self._most = most
        # Start of the window of --max-requests, and requests sent in it.
        self._own_since, self._own_spent = 0.0, 0
        self.share = 1  # the process may use 1/share of remaining requests, quota and `most`
        self._clock = clock

    def take(self, path: str, pause: Pause) -> Turn:
        """Wait until a request may be sent.

        The thread wakes after each step, because another thread's answer may open the window.
        """
        waited = 0.0
        while isinstance(turn := self._turn(path, waited), Wait):
            step = min(turn.seconds, STEP)
            pause(turn, step)
            waited += step
        if waited:
            pause(None, 0.0)
        return turn

    def _turn(self, path: str, waited: float) -> Turn | Wait:
        kind = _kind_of(path)
        with self._lock:
            now, window = self._clock(), self._windows[kind]
            seconds, reason = max((window.wait(now), kind), (self._own_wait(now), _OWN))
            if seconds > 0:
                return Wait(_REASONS[reason], seconds)
            self._windows[kind] = window.spent(now)
            self._own_spent += 1
            return Turn(path, first=now if window.is_over(now) else 0.0, waited=waited)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        """Update the windows after an answer of the Hub, or a failed request (NO_ANSWER)."""
        limit = rate_limit(headers)
        request_kind = limit_kind = _kind_of(turn.path)
        has_limit = limit is not None and limit.kind in {None, *_KINDS}
        if limit and limit.kind in _KINDS:
            limit_kind = _KINDS.index(limit.kind)
        with self._lock:
            now, windows = self._clock(), self._windows
            if not opens(status, limit) and (windows[limit_kind].is_over(now) or not has_limit):
                windows[request_kind] = windows[request_kind].lost(turn.first)
                return
            if limit and has_limit:
                windows[limit_kind] = windows[limit_kind].after_limit(limit, now, self.share)
            if not has_limit or limit_kind != request_kind:
                windows[:] = [
                    window.after_no_limit(now, is_requested=kind == request_kind)
                    for kind, window in enumerate(windows)
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
