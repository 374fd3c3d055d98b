"""The pool of a sweep: models under way, audited by threads of this process or by a Dask cluster.

A model that ends its worker, takes all memory or never ends cannot be told from those beside it.
All models that were under way are suspects then, and each is audited once more, alone. The one that
fails again is the cause.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from auditor.downloader.waits import Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.extras import install
from auditor.sweep.one_model import Done, failed
from auditor.sweep.store.ledger import Waiting

RESUME = "outcomes are stored, and the same command resumes the sweep"
_LOST = 30.0  # seconds after which idle workers have lost an outcome: it dies with its worker
_AHEAD = 2  # submitted models for each worker, so that none idles while outcomes are written


class Workers(Protocol):
    """The auditors of the models, `at_once` of them at the same time."""

    at_once: int

    def submit(self, waiting: Waiting, *, alone: bool) -> Future[Done | None]:
        """Start an audit; its result is None if memory ran out and the model was not `alone`."""

    def check(self) -> None:
        """Raise SourceError if the workers are lost."""

    def is_idle(self) -> bool:
        """Return whether no model is under way: outcomes that have not arrived are lost then."""

    def close(self) -> None:
        """Start no more audits, and end the waits of those under way."""


class WorkerPool:
    """The models under way; `start` makes the workers, again if they are stuck."""

    def __init__(self, start: Callable[[], Workers], hopeless: float, waits: Waits) -> None:
        """Models are stuck if none was done for `hopeless` seconds, in which none waited."""
        self._start = start
        self._hopeless = hopeless
        self._waits = waits
        self._workers: Workers | None = None
        self._running: dict[Future[Done | None], Waiting] = {}
        self._suspects: deque[Waiting] = deque()
        self._is_alone = False  # whether the running model is a suspect
        self._arrived: SimpleQueue[Future[Done | None]] = SimpleQueue()
        self._since = 0.0  # the last outcome, or the first model after a pause

    def start(self) -> Workers:
        """Start the workers, unless they are running."""
        if self._workers is None:
            self._workers = self._start()
        return self._workers

    def close(self) -> None:
        self._running.clear()
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    @property
    def under_way(self) -> int:
        return len(self._running) + len(self._suspects)

    @property
    def has_room(self) -> bool:
        """Whether another model may be submitted; this limits the memory of this process."""
        if self._suspects or self._is_alone:
            return False
        return len(self._running) < _AHEAD * max(1, self._workers.at_once if self._workers else 1)

    def submit(self, waiting: Waiting) -> None:
        self._run(waiting, alone=False)

    def _run(self, waiting: Waiting, *, alone: bool) -> None:
        if not self._running:
            self._since = time.monotonic()
        self._is_alone = alone
        future = self.start().submit(waiting, alone=alone)
        self._running[future] = waiting
        future.add_done_callback(self._arrived.put)

    def finished(self, seconds: float) -> Iterator[Done]:
        """Wait up to `seconds` for an outcome, and yield all that arrived.

        Raise SourceError if the workers are lost, UsageError if they cannot audit.
        """
        if self._suspects and not self._running:
            self._run(self._suspects.popleft(), alone=True)
        self.start().check()
        yield from self._given_up()
        with suppress(Empty):
            future = self._arrived.get(timeout=seconds)
            while True:
                yield from self._received(future)
                future = self._arrived.get_nowait()

    def _received(self, future: Future[Done | None]) -> Iterator[Done]:
        waiting = self._running.pop(future, None)
        if waiting is None:  # it was given up
            return
        was_alone, self._is_alone = self._is_alone, False
        self._since = time.monotonic()
        if future.cancelled():
            raise SourceError(Reason.UNREACHABLE, f"the workers have lost their models; {RESUME}")
        error = future.exception()
        if isinstance(error, UsageError):
            raise error
        if isinstance(error, ImportError):
            raise UsageError(f"a worker cannot audit: {error}; {install('cluster')} there")
        if error is not None and was_alone:
            detail = f"{type(error).__name__}, and nothing else was under way"
            yield failed(waiting, Reason.CRASHED, f"its audit ended a worker: {detail}")
        elif error is None and (done := future.result()):
            yield done
        else:
            self._suspects.append(waiting)

    def _given_up(self) -> Iterator[Done]:
        """Replace stuck workers; a model that was alone is the cause, others become suspects."""
        now = time.monotonic()
        if self._waits.longest:
            self._since = now
        elapsed = now - self._since
        is_lost = elapsed > _LOST and self.start().is_idle()
        if not self._running or not (is_lost or elapsed > self._hopeless):
            return
        stuck, was_alone = tuple(self._running.values()), self._is_alone
        self._is_alone = False
        self.close()
        if was_alone:
            detail = f"its audit was not done after {self._hopeless:.0f} s"
            yield from (failed(waiting, Reason.CRASHED, detail) for waiting in stuck)
        else:
            self._suspects.extend(stuck)
