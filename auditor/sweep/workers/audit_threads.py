"""The threads that audit: those of a sweep in its own process, and those of a cluster's worker.

A thread cannot be ended. One that is stuck is given up, which its model's outcome says, and another
takes its place. Where memory runs out, whatever was under way may be to blame: that model goes
once more, alone. How many models are under way at once is measured.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from msgspec import Struct

from auditor.downloader.waits import Waits
from auditor.errors import Reason
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers.allowance import Allowance
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.concurrency import Concurrency
from auditor.sweep.workers.one_model import Auditor, Done, failed

# Objects made before cycles are looked for among them. A model makes ten thousand, nearly all of
# which go when it is done, and looking for cycles among every 700 takes a tenth of the time.
YOUNG = 20_000

# Seconds for which an outcome waits for others, to be written with them in one transaction, and how
# many models have to be given to the threads for that: they need others to examine meanwhile.
_TOGETHER, MANY = 0.05, 64

_AHEAD = 2  # times what is under way may be given: no thread waits while outcomes are written


class _Task(Struct, eq=False):
    """A model, and where its outcome is waited for."""

    waiting: Waiting
    arrived: "SimpleQueue[Done]"
    alone: bool = False  # memory ran out while it was under way with others


class AuditThreads:
    """As many threads as there should be models under way; shared by who has models to audit.

    A thread ends where nothing is left for it to begin.
    """

    def __init__(
        self, policy: Policy, token: str | None, budget: Budget, waits: Waits | None = None
    ) -> None:
        self.budget = budget
        self._policy = policy
        self._auditor = Auditor(policy, token, budget, waits)
        self.waits = self._auditor.talk.waits  # for the budget, or because a server asked for it
        self.concurrency = Concurrency(policy.at_once)
        self._lock = Lock()
        self._ready: deque[_Task] = deque()
        self._running: dict[_Task, Allowance] = {}  # each has a thread
        self._since = time.monotonic()  # when something was done, or nothing could be

    def submit(self, waiting: Waiting, arrived: "SimpleQueue[Done]") -> None:
        with self._lock:
            self._ready.append(_Task(waiting, arrived))
            self._hire()

    def give_up_stuck(self) -> None:
        """Give up what is under way once nothing of it was done for too long."""
        with self._lock:
            now = time.monotonic()
            if not self._running or self.waits.longest:
                self._since = now
            if now - self._since <= self._policy.hopeless:
                return
            detail = f"its audit was not done after {self._policy.hopeless:.0f} s"
            for task, allowance in self._running.items():
                self._auditor.give_up(allowance)
                task.arrived.put(failed(task.waiting, Reason.CRASHED, detail))
            self._running.clear()
            self._hire()

    def close(self) -> None:
        """End the waits of those at work; nothing more is begun. Reads may take seconds to end."""
        with self._lock:
            self._ready.clear()
            for allowance in self._running.values():
                self._auditor.give_up(allowance)
        self._auditor.close()

    def _hire(self) -> None:
        """Have a thread for each task that may begin."""
        while task := self._begun():
            try:
                Thread(target=self._work, args=(task,), name="audit", daemon=True).start()
            except RuntimeError:  # this machine has no more: those that there are go on
                del self._running[task]
                self._ready.appendleft(task)
                if not self._running:
                    raise
                return

    def _begun(self) -> _Task | None:
        """The next task, which has begun; None: there is none that may."""
        if not self._ready or len(self._running) >= self.concurrency.models:
            return None
        if self._running and any(task.alone for task in (self._ready[0], *self._running)):
            return None
        if not self._running:
            self._since = time.monotonic()
            self.concurrency.begin()
        task = self._ready.popleft()
        self._running[task] = self._auditor.allowance()
        return task

    def _work(self, task: _Task | None) -> None:
        while task and (allowance := self._running.get(task)):
            done = self._auditor.audit(task.waiting, allowance, alone=task.alone)
            seconds = allowance.seconds if allowance.asked else None
            with self._lock:
                if self._running.pop(task, None) is None:  # given up, and this thread with it
                    return
                self._since = time.monotonic()
                self.concurrency.done(seconds, waited=allowance.waited)
                if done:
                    task.arrived.put(done)
                else:  # memory ran out: this one may be to blame, or another
                    task.alone = True
                    self._ready.appendleft(task)
                task = self._begun()
                self._hire()


class Crew:
    """The models that a sweep, or a batch of one, has given to threads."""

    def __init__(self, threads: AuditThreads) -> None:
        self._threads = threads
        self._arrived: SimpleQueue[Done] = SimpleQueue()
        self.under_way = 0

    @property
    def has_room(self) -> bool:
        return self.under_way < _AHEAD * self._threads.concurrency.models

    def submit(self, waiting: Waiting) -> None:
        self.under_way += 1
        self._threads.submit(waiting, self._arrived)

    def finished(self, seconds: float) -> Iterator[Done]:
        """What is done within that many seconds; gives up what is stuck."""
        self._threads.give_up_stuck()
        with suppress(Empty):
            done = self._arrived.get(timeout=seconds)
            if self.under_way >= MANY:
                time.sleep(_TOGETHER)
            while True:
                self.under_way -= 1
                yield done
                done = self._arrived.get_nowait()
