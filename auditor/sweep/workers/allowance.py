"""What one model, or one page of the list of models, may take: time, bytes, turns at the Hub."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Condition, Event, Lock
from typing import NamedTuple, Self

from auditor.downloader.http import Governor, Session, Turn
from auditor.downloader.http_errors import require_online
from auditor.downloader.model_argument import HubModel
from auditor.downloader.model_list import MAX_PAGE, PAGE_SECONDS
from auditor.downloader.retry import WINDOW
from auditor.downloader.waits import Talk
from auditor.errors import Reason, SourceError
from auditor.sweep.policy import Policy
from auditor.sweep.workers.budget import Budget


class ByteGate:
    """Lets in as many bytes as fit, and what does not fit alone; thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: dict[object, int] = {}
        self._changed = Condition()

    def enter(self, who: object, size: int) -> None:
        """Wait until it fits, unless `who` is inside."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(who, size))
            self._inside.setdefault(who, size)

    def leave(self, who: object) -> None:
        """`who` need not be inside."""
        with self._changed:
            if self._inside.pop(who, None) is not None:
                self._changed.notify_all()

    def _fits(self, who: object, size: int) -> bool:
        inside = self._inside
        return not inside or who in inside or sum(inside.values()) + size <= self._most


class Bounds(NamedTuple):
    """How much of the network something may take."""

    what: str
    seconds: float  # waiting for the budget does not count
    most: int  # bytes

    @classmethod
    def of_a_model(cls, policy: Policy) -> Self:
        return cls("one model", policy.deadline, policy.max_bytes)


PAGE_BOUNDS = Bounds("one page of the list of models", PAGE_SECONDS, MAX_PAGE)

# Bytes of one model from which on it is large: those are fetched and examined one at a time in each
# process, for one of 11 MB takes 400 MB while it is examined.
LARGE = 4 * 1024 * 1024


class Allowance(Governor):
    """The governor of what is bounded, and its requests, until it is `over`.

    What turns out to be large waits at the `gate`, if one is given.
    """

    def __init__(
        self, bounds: Bounds, budget: Budget, talk: Talk, over: Event, gate: ByteGate | None = None
    ) -> None:
        super().__init__(bounds.most, bounds.what)
        self.over = over  # it waits for nothing any more
        self._bounds = bounds
        self._budget = budget
        self._talk = talk
        self._rest = partial(talk.waits.rest, over=over)
        self._gate = gate
        self._lock = Lock()
        self._since = time.monotonic()  # later by all waits for which it is not to blame
        self._waiting, self._stopped = 0, 0.0  # threads that wait so, and when the first began
        self._most_held = float(WINDOW)
        self.waited = False  # for the budget
        self.asked = False  # for anything: what is stored, or has no weights, asks for nothing

    def session(self, model: HubModel, token: str | None) -> Session:
        """Requests within the bounds; raises SourceError where HF_HUB_OFFLINE forbids them.

        A sweep is not watched: what passes is waited for.
        """
        require_online()
        silence, over = self._bounds.seconds, self.over
        return Session(model, token, self._talk, governor=self, silence=silence, over=over)

    @property
    def seconds(self) -> float:
        """For how long it is under way, without the waits for which it is not to blame."""
        with self._lock:
            return (self._stopped if self._waiting else time.monotonic()) - self._since

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """Around a wait. Its threads may wait at the same time: that time is counted once."""
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
        self.asked = True
        self.waited |= turn.waited > 0
        return turn

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        self._budget.note(turn, status, headers)

    def held(self, seconds: float) -> AbstractContextManager[object]:
        """Not the model's fault, unless it is asked for again and again."""
        left, self._most_held = self._most_held, self._most_held - seconds
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
