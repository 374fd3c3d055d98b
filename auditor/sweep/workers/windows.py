"""One window of requests, as the Hub counts them: pure rules. Times are of any one clock."""

from enum import IntEnum
from math import inf
from typing import NamedTuple

from auditor.downloader.rate_limits import RateLimit

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
