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
from threading import Condition, Thread
from typing import NamedTuple, Self

from msgspec import Struct

from auditor.audit.guard import crash
from auditor.downloader.waits import Wait
from auditor.errors import Reason
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers.allowance import Allowance
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.concurrency import Concurrency, Spent
from auditor.sweep.workers.one_model import Auditor, Done, failed

# Objects made before cycles are looked for among them. A model makes ten thousand, nearly all of
# which go when it is done, and looking for cycles among every 700 takes a tenth of the time.
YOUNG = 20_000

# Seconds for which an outcome waits for others, to be written with them in one transaction, and how
# many models have to be given to the threads for that: they need others to examine meanwhile.
_TOGETHER, MANY = 0.05, 64

_IDLE = 60.0  # seconds after which a thread without work ends
_AHEAD = 2  # times what is under way may be given: no thread waits while outcomes are written


class _Task(NamedTuple):
    """A model, and where its outcome is waited for."""

    waiting: Waiting
    arrived: "SimpleQueue[Done]"


class _Job(Struct, eq=False):
    """A task that is under way."""

    task: _Task
    allowance: Allowance
    alone: bool  # memory ran out while it was under way with others


class AuditThreads:
    """As many threads as there should be models under way; shared by who has models to audit."""

    def __init__(self, policy: Policy, token: str | None, budget: Budget) -> None:
        self.budget = budget
        self._policy = policy
        self._auditor = Auditor(policy, token, budget)
        self._concurrency = Concurrency(policy.at_once)
        self._changed = Condition()
        self._ready: deque[_Task] = deque()
        self._suspects: deque[_Task] = deque()
        self._running: set[_Job] = set()
        self._threads = 0
        self._idle = 0
        self._over = False
        self._since = time.monotonic()  # when something was done, or nothing could be

    @property
    def room(self) -> int:
        """How many models may be given to them."""
        return _AHEAD * self._concurrency.models

    def submit(self, waiting: Waiting, arrived: "SimpleQueue[Done]") -> None:
        with self._changed:
            self._ready.append(_Task(waiting, arrived))
            self._hire()

    def give_up_stuck(self) -> None:
        """Give up what is under way once nothing of it was done for too long."""
        with self._changed:
            now = time.monotonic()
            if not self._running or self.budget.blocked():
                self._since = now
            if now - self._since <= self._policy.hopeless:
                return
            self._since = now
            stuck, self._running = self._running, set()
            self._threads -= len(stuck)
            detail = f"its audit was not done after {self._policy.hopeless:.0f} s"
            for job in stuck:
                self._auditor.give_up(job.allowance)
                job.task.arrived.put(failed(job.task.waiting, Reason.CRASHED, detail))
            for _ in range(len(stuck)):
                self._hire()

    def close(self) -> None:
        """End the waits of those at work; nothing more is begun. Reads may take seconds to end."""
        with self._changed:
            self._over = True
            self._ready.clear()
            self._suspects.clear()
            self._changed.notify_all()
        self._auditor.close()

    def _hire(self) -> None:
        """Have a thread for one more job; not more of them than models should be under way."""
        if self._idle:
            self._changed.notify()
        elif self._threads < self._concurrency.models:
            try:
                Thread(target=self._work, name="audit", daemon=True).start()
            except RuntimeError:  # this machine has no more: those that there are go on
                if not self._threads:
                    raise
            else:
                self._threads += 1

    def _work(self) -> None:
        while (job := self._taken()) is not None:
            since = time.monotonic()
            done = self._done(job)
            seconds = time.monotonic() - since - job.allowance.waited
            with self._changed:
                if job not in self._running:  # it was given up, and this thread with it
                    return
                self._running.discard(job)
                self._since = time.monotonic()
                self._concurrency.done(seconds, self._spent(), self.budget.rate)
                if done is None:
                    self._suspects.append(job.task)
                else:
                    job.task.arrived.put(done)
                if self._suspects or job.alone:
                    self._changed.notify_all()
                elif self._ready:
                    self._hire()

    def _done(self, job: _Job) -> Done | None:
        """What came of it; None: memory ran out, and others were under way."""
        try:
            return self._auditor.audit(job.task.waiting, job.allowance)
        except MemoryError:
            if not job.alone:
                return None
            detail = "its audit ran out of memory, and nothing else was under way"
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other models go on
            detail = crash(error)
        return failed(job.task.waiting, Reason.CRASHED, detail)

    def _taken(self) -> _Job | None:
        """The next job, when it may begin; None: there will be none."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._over or self._may_begin(), _IDLE)
            self._idle -= 1
            if self._over or not self._may_begin():
                self._threads -= 1
                return None
            alone = bool(self._suspects)
            task = (self._suspects or self._ready).popleft()
            job = _Job(task, self._auditor.allowance(), alone)
            if not self._running:
                self._since = time.monotonic()
                self._concurrency.begin(self._spent())
            self._running.add(job)
            return job

    def _may_begin(self) -> bool:
        if self._suspects or any(job.alone for job in self._running):
            return not self._running
        return bool(self._ready) and len(self._running) < self._concurrency.models

    def _spent(self) -> Spent:
        return Spent(time.monotonic(), time.process_time(), self.budget.files)


class Crew:
    """The models that a sweep, or a batch of one, has given to threads; a context manager."""

    def __init__(self, threads: AuditThreads) -> None:
        self._threads = threads
        self._arrived: SimpleQueue[Done] = SimpleQueue()
        self.under_way = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.close()

    def start(self) -> None:
        """Threads start when there is something for them."""

    @property
    def has_room(self) -> bool:
        return self.under_way < self._threads.room

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

    def waiting(self) -> Wait | None:
        return self._threads.budget.waiting()
