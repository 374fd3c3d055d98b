"""The limits for reading one model, or one page of the model list: seconds, bytes, requests."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Condition, Event, Lock
from typing import NamedTuple, Self

from auditor.downloader.http import RateLimiter, Session, Turn
from auditor.downloader.hub_settings import require_online
from auditor.downloader.model_argument import HubModel
from auditor.downloader.model_list import MAX_PAGE, PAGE_SECONDS
from auditor.downloader.retry import WINDOW
from auditor.downloader.waits import ProgressLines
from auditor.errors import Reason, SourceError
from auditor.sweep.policy import Policy
from auditor.sweep.workers.budget import Budget


class ByteGate:
    """A gate that admits work up to a total of bytes; larger work runs alone. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: dict[object, int] = {}
        self._changed = Condition()

    def enter(self, who: object, size: int) -> None:
        """Wait until `size` more bytes are within the total, unless `who` is already inside."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(who, size))
            self._inside.setdefault(who, size)

    def leave(self, who: object) -> None:
        """Free the bytes of `who`; do nothing if `who` is not inside."""
        with self._changed:
            if self._inside.pop(who, None) is not None:
                self._changed.notify_all()

    def _fits(self, who: object, size: int) -> bool:
        inside = self._inside
        return not inside or who in inside or sum(inside.values()) + size <= self._most


class Bounds(NamedTuple):
    """The limits on network use of one model or one page."""

    what: str  # the name in messages: "one model"
    seconds: float  # without waits for the budget
    most: int  # bytes

    @classmethod
    def of_a_model(cls, policy: Policy) -> Self:
        return cls("one model", policy.deadline, policy.max_bytes)


PAGE_BOUNDS = Bounds("one page of the list of models", PAGE_SECONDS, MAX_PAGE)

# A model with more bytes than this is large. Each process fetches and examines one large model at a
# time, because examining 11 MB takes 400 MB of memory.
LARGE = 4 * 1024 * 1024


class Allowance(RateLimiter):
    """The limiter that admits the requests of one model or page, within its bounds.

    A model with more than LARGE bytes waits at the `gate`, if given. Setting `over` ends all waits.
    Waits for the budget and waits imposed by a server are excused: they are not part of `seconds`.
    """

    def __init__(
        self,
        bounds: Bounds,
        budget: Budget,
        talk: ProgressLines,
        over: Event,
        gate: ByteGate | None = None,
    ) -> None:
        super().__init__(bounds.most, bounds.what)
        self.over = over  # set: end all waits
        self._bounds = bounds
        self._budget = budget
        self._talk = talk
        self._rest = partial(talk.waits.rest, over=over)
        self._gate = gate
        self._lock = Lock()
        self._since = time.monotonic()  # the start, shifted by the duration of excused waits
        self._waiting, self._stopped = 0, 0.0  # threads in excused waits; when the first wait began
        self._excused_seconds_left = float(WINDOW)  # left for waits that a server imposes
        self.waited = False  # whether a request waited for the budget
        self.has_requests = False  # whether there was a request: stored models need none

    def session(self, model: HubModel, token: str | None) -> Session:
        """Return a session within the bounds; raise SourceError if HF_HUB_OFFLINE is set.

        No user waits for a sweep, so temporary errors are retried until the model's time is over.
        """
        require_online()
        silence, over = self._bounds.seconds, self.over
        return Session(model, token, self._talk, limiter=self, silence=silence, over=over)

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
        self._in_time()
        with self._excused():
            turn = self._budget.take(path, self._rest)
        self.has_requests = True
        self.waited |= turn.waited > 0
        return turn

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        self._budget.note(turn, status, headers)

    def held(self, seconds: float) -> AbstractContextManager[object]:
        """Return a context for a wait imposed by a server.

        The wait is excused if the earlier ones took less than WINDOW seconds in all.
        """
        left = self._excused_seconds_left
        self._excused_seconds_left -= seconds
        return self._excused() if left > 0 else nullcontext()

    def check(self, received: int) -> None:
        super().check(received)
        self._in_time()
        if received > LARGE and self._gate:
            with self._excused():
                self._gate.enter(self, received)

    def _in_time(self) -> None:
        bounds = self._bounds
        if self.seconds > bounds.seconds:
            detail = f"not fetched within {bounds.seconds:.0f} s, the most for {bounds.what}"
            raise SourceError(Reason.TIMED_OUT, detail)
