"""The limits on a sweep's requests: the Hub's rate limits, and a budget for each model or page."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import inf
from threading import Event, Lock
from typing import NamedTuple, Self

from auditor.downloader.http import NO_ANSWER, RequestBudget, Session, Turn
from auditor.downloader.hub_settings import require_online
from auditor.downloader.model_argument import HubModel
from auditor.downloader.model_list import MAX_PAGE, PAGE_SECONDS
from auditor.downloader.retry import WINDOW, RateLimit, rate_limit
from auditor.downloader.waits import STEP, ProgressLines, Wait
from auditor.errors import Reason, SourceError
from auditor.sweep.settings import Policy

_ROUNDING = 1.0  # seconds: the header's `t` is in whole seconds, so a window may last longer
_LOOK = 0.25  # seconds between checks for the answer to the first request of a window
_GIVEN_UP = 30.0  # seconds without an answer after which another request is sent as the first
_REFUSED = frozenset((NO_ANSWER, 429, *range(500, 600)))  # do not show that a window is open

Pause = Callable[[Wait | None, float], None]  # sleeps for a step of a wait; None: the wait is over


class _Window:
    """The rate-limit window of one kind of requests.

    The size of a new window is unknown until an answer arrives, so one request is sent first, and
    the others wait for its answer.
    """

    def __init__(self) -> None:
        self.left = 0.0  # remaining requests; inf: the server sends no limits, as mirrors do
        self.until = -inf  # end of the window; inf: the server sends no limits
        self._quota = 0.0  # requests of a complete window
        self._asked = -inf  # send time of the first request, for whose answer others wait

    def wait(self, now: float) -> float:
        """Return the seconds until a request may be sent; 0 means now."""
        if now >= self.until:
            return _LOOK if now < self._asked + _GIVEN_UP else 0.0
        # A twentieth of the requests, 50 at most, is left to other users of the token.
        spared = min(self._quota // 20, 50)
        return self.until - now if self.left <= spared else 0.0

    def take(self, now: float) -> None:
        """Count one more request."""
        if now >= self.until:
            self._asked = now
        self.left -= 1

    def note(self, status: int, limit: RateLimit | None, now: float) -> None:
        """Update the window after an answer; `limit` is the one that its headers state."""
        is_open = now < self.until
        if limit is None:
            if not is_open and status in _REFUSED:
                self._asked = -inf  # another request is sent first
            elif not is_open:
                self.left = self.until = inf
            return
        self._asked = -inf
        until = now + limit.ask_again + _ROUNDING
        is_known = is_open and self.until < inf
        if is_known and until < self.until - 2 * _ROUNDING:
            return  # the answer belongs to an earlier window
        is_same = is_known and until <= self.until + 2 * _ROUNDING
        # Requests under way are counted in `left`, but not in an answer that left before them.
        self.left = min(self.left, limit.remaining) if is_same else limit.remaining
        self.until = until
        self._quota = limit.quota or max(self._quota, limit.remaining)


_KINDS = ("api", "resolvers")
_OWN = "own"
_REASONS = {
    "api": "the budget of requests to the Hub's API is spent",
    "resolvers": "the budget of requests for files is spent",
    _OWN: "the requests of --max-requests are spent",
}


class RateLimiter:
    """A gate that admits requests within the Hub's rate limits, at most `most` in five minutes."""

    def __init__(
        self, most: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._clock = clock
        self._lock = Lock()
        self._windows = {kind: _Window() for kind in (*_KINDS, _OWN)}

    def take(self, path: str, pause: Pause) -> None:
        """Wait until a request may be sent.

        The thread wakes after each step, because another thread's answer may open the window.
        """
        has_waited = False
        while wait := self._wait(path):
            has_waited = True
            pause(wait, min(wait.seconds, STEP))
        if has_waited:
            pause(None, 0.0)

    def _wait(self, path: str) -> Wait | None:
        """Return the wait before a request; return None and count the request if it may be sent."""
        kinds = (_kind_of(path), _OWN)
        with self._lock:
            now, own = self._clock(), self._windows[_OWN]
            if now >= own.until:
                own.left, own.until = self._most or inf, now + WINDOW
            seconds, kind = max((self._windows[kind].wait(now), kind) for kind in kinds)
            if seconds > 0:
                return Wait(_REASONS[kind], seconds)
            for kind in kinds:
                self._windows[kind].take(now)
            return None

    def note(self, path: str, status: int, headers: Mapping[str, str]) -> None:
        """Update the windows after an answer of the Hub, or a failed request (NO_ANSWER)."""
        kind, limit = _kind_of(path), rate_limit(headers)
        limited_kind = limit.kind or kind if limit else None
        with self._lock:
            now = self._clock()
            if limit and limited_kind in _KINDS:
                self._windows[limited_kind].note(status, limit, now)
            if limited_kind != kind:
                self._windows[kind].note(status, None, now)


def _kind_of(path: str) -> str:
    return "resolvers" if "/resolve/" in path else "api"


# --- the budget of one model ----------------------------------------------------------------------


class Bounds(NamedTuple):
    """The limits on network use of one model or one page."""

    what: str  # the name in messages: "one model"
    seconds: float  # without waits for the rate limit
    most: int  # bytes

    @classmethod
    def of_a_model(cls, policy: Policy) -> Self:
        return cls("one model", policy.deadline, policy.max_bytes)


PAGE_BOUNDS = Bounds("one page of the list of models", PAGE_SECONDS, MAX_PAGE)


class Budget(RequestBudget):
    """The seconds and bytes that the requests of one model or page may take.

    Setting `over` ends all waits. Waits for the rate limit and waits imposed by a server are
    excused: they are not part of `seconds`.
    """

    def __init__(
        self, bounds: Bounds, limiter: RateLimiter, talk: ProgressLines, over: Event
    ) -> None:
        super().__init__(bounds.most, bounds.what)
        self._bounds = bounds
        self._limiter = limiter
        self._talk = talk
        self._over = over
        self._pause = partial(talk.waits.rest, over=over)
        self._lock = Lock()
        self._since = time.monotonic()  # the start, shifted by the duration of excused waits
        self._waiting, self._stopped = 0, 0.0  # threads in excused waits; when the first wait began
        self._excused_seconds_left = float(WINDOW)  # left for waits that a server imposes

    def session(self, model: HubModel, token: str | None) -> Session:
        """Return a session within the bounds; raise SourceError if HF_HUB_OFFLINE is set.

        No user waits for a sweep, so temporary errors are retried until the model's time is over.
        """
        require_online()
        silence = self._bounds.seconds
        return Session(model, token, self._talk, budget=self, silence=silence, over=self._over)

    @property
    def seconds(self) -> float:
        """The seconds since the start, without excused waits."""
        with self._lock:
            return (self._stopped if self._waiting else time.monotonic()) - self._since

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """Exclude a wait from `seconds`; simultaneous waits of several threads count once."""
        with self._lock:
            self._stopped = self._stopped if self._waiting else time.monotonic()
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._since += time.monotonic() - self._stopped

    def admit(self, path: str) -> Turn:
        self._require_time()
        with self._excused():
            self._limiter.take(path, self._pause)
        return Turn(path)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        self._limiter.note(turn.path, status, headers)

    def held(self, seconds: float) -> AbstractContextManager[object]:
        """Return a context for a wait imposed by a server.

        The wait is excused if the earlier ones took less than WINDOW seconds in all.
        """
        left = self._excused_seconds_left
        self._excused_seconds_left -= seconds
        return self._excused() if left > 0 else nullcontext()

    def check(self, received: int) -> None:
        super().check(received)
        self._require_time()

    def _require_time(self) -> None:
        if self.seconds > self._bounds.seconds:
            bounds = self._bounds
            detail = f"not fetched within {bounds.seconds:.0f} s, the most for {bounds.what}"
            raise SourceError(Reason.TIMED_OUT, detail)
