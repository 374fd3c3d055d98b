"""The audit threads of a sweep's own process, or of one worker of a cluster.

Python cannot end a thread. A stuck thread is abandoned: its model gets an unaudited outcome, and a
new thread replaces it. If memory runs out, any model under way may be the cause, so the model that
failed is audited again, alone. The number of models under way is adjusted by measurement.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from msgspec import Struct

from auditor.downloader.waits import Waits
from auditor.errors import Reason
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers.allowance import Allowance
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Auditor, Done, failed

# Threshold of the youngest generation of the garbage collector, in objects. One model creates ten
# thousand objects, nearly all of them freed when its audit ends; a collection after every 700, the
# default, takes a tenth of the time.
YOUNG = 20_000

# Seconds for which an outcome waits for others, to be written with them in one transaction, and the
# least number of submitted models for such a wait: the threads must have work meanwhile.
_TOGETHER, MANY = 0.05, 64

# Submitted models per model under way, so that no thread idles while outcomes are written.
_AHEAD = 2


class _Task(Struct, eq=False):
    """A model to audit, and the queue for its outcome."""

    waiting: Waiting
    arrived: "SimpleQueue[Done]"
    alone: bool = False  # to audit with no other model under way, because memory ran out


class AuditThreads:
    """A pool with a thread for each model under way; several Crews may share it.

    A thread audits one task after another, and ends if no task may start.
    """

    def __init__(
        self, policy: Policy, token: str | None, budget: Budget, waits: Waits | None = None
    ) -> None:
        self.budget = budget
        self._policy = policy
        self._auditor = Auditor(policy, token, budget, waits)
        self.waits = self._auditor.talk.waits  # waits for the budget, or imposed by a server
        self.concurrency = Concurrency(policy.at_once)
        self._lock = Lock()
        self._ready: deque[_Task] = deque()
        self._running: dict[_Task, Allowance] = {}  # a thread runs each of these tasks
        self._since = time.monotonic()  # the last outcome, or the first task after a pause

    def submit(self, waiting: Waiting, arrived: "SimpleQueue[Done]") -> None:
        with self._lock:
            self._ready.append(_Task(waiting, arrived))
            self._start_threads()

    def give_up_stuck(self) -> None:
        """Abandon all models under way if no audit has ended for `Policy.hopeless` seconds."""
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
            self._start_threads()

    def close(self) -> None:
        """Start no more tasks, and end the waits of running tasks; reads may take seconds."""
        with self._lock:
            self._ready.clear()
            for allowance in self._running.values():
                self._auditor.give_up(allowance)
        self._auditor.close()

    def _start_threads(self) -> None:
        """Start a thread for each task that may start; call it with the lock held."""
        while task := self._start_next():
            try:
                Thread(target=self._work, args=(task,), name="audit", daemon=True).start()
            except RuntimeError:  # the limit on threads is reached: continue with the running ones
                del self._running[task]
                self._ready.appendleft(task)
                if not self._running:
                    raise
                return

    def _start_next(self) -> _Task | None:
        """Move the next task to `_running` and return it; return None if no task may start."""
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
            seconds = allowance.seconds if allowance.has_requests else None
            with self._lock:
                if self._running.pop(task, None) is None:  # task and thread were abandoned
                    return
                self._since = time.monotonic()
                self.concurrency.done(seconds, waited=allowance.waited)
                if done:
                    task.arrived.put(done)
                else:  # memory ran out, maybe because of another model
                    task.alone = True
                    self._ready.appendleft(task)
                task = self._start_next()
                self._start_threads()


class Crew:
    """The models that a sweep, or one batch of a cluster, submits to the threads."""

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
        """Abandon stuck models, wait up to `seconds` for an outcome, and yield all that arrived."""
        self._threads.give_up_stuck()
        with suppress(Empty):
            done = self._arrived.get(timeout=seconds)
            if self.under_way >= MANY:
                time.sleep(_TOGETHER)
            while True:
                self.under_way -= 1
                yield done
                done = self._arrived.get_nowait()


# --- the number of models under way --------------------------------------------------------------

LEAST = 4  # models under way at the start of a sweep, before any measurement
_SPARE = 1.25  # factor on the computed number, because answers arrive unevenly
_ROUND = 0.25  # shortest round in seconds: times of few models vary
_BUSY = 0.95  # processor share of a round's seconds above which models wait for the processor, too
_LESS = 0.98  # factor on the time of a busy round, a part of which was such a wait
_MOST_TIMES = 4  # longest accepted time, as a multiple of that in the quickest round


class Concurrency:
    """The best number of models under way, measured after each round of that many models.

    By Little's law it is the rate of models times the seconds for which a model is under way. The
    rate is limited by the processor or, if models waited for the request budget, by the budget. The
    seconds are measured in the last round in which the processor was idle for a while. If the
    processor is busy, models wait for it too, so the measured seconds are reduced round by round
    until it is idle again. Models also wait for each other (at a full link, a server, a disk), so
    the seconds are at most four times those of the quickest round. Without this limit a nearby
    server led to 200 threads after twenty thousand models, which took 320 MB. Models without
    requests do not count.
    """

    def __init__(
        self,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._most = most
        self._clock, self._processor = clock, processor
        self._network = inf  # seconds of network for one model
        self._quickest = inf  # seconds for one model in the quickest round
        self.models = min(LEAST, most)
        self.begin()

    def begin(self) -> None:
        """Begin a round: after the previous round, or when the first model starts after a pause."""
        self._begun = self._clock(), self._processor()
        self._done, self._fetched, self._seconds, self._waited = 0, 0, 0.0, False

    def done(self, seconds: float | None, *, waited: bool) -> None:
        """Count a finished model, and the seconds for which it was under way.

        `seconds` excludes waits for the request budget; `waited` is whether it waited.
        `seconds` is None if the model needed no request: its headers are stored, or it has no
        weights.
        """
        self._done += 1
        self._waited |= waited
        if seconds is not None:
            self._fetched += 1
            self._seconds += seconds
        wall = self._clock() - self._begun[0]
        if self._done < self.models or wall < _ROUND:
            return
        processor = self._processor() - self._begun[1]
        needed = self._needed(wall, processor) if self._fetched else 0.0
        self.models = min(max(LEAST, round(min(needed, self._most))), self._most)
        self.begin()

    def _needed(self, wall: float, processor: float) -> float:
        """Return the number of models by Little's law, from a round's wall and CPU seconds."""
        mean = self._seconds / self._fetched
        self._quickest = min(self._quickest, mean)
        mean = min(mean, _MOST_TIMES * self._quickest)
        is_busy = processor >= _BUSY * wall
        self._network = _LESS * min(self._network, mean) if is_busy else mean
        limiting_seconds = wall if self._waited else processor
        if not limiting_seconds:
            return inf
        return self._fetched / limiting_seconds * self._network * _SPARE
