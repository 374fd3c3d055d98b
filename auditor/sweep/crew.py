"""The processes that audit: each with threads of its own, and expendable.

Processes and not threads alone, because an audit is computing: a model that is like another takes
0.5 ms of processor time, 0.3 of them HTTP, and one that is not 3 ms more. Each process fetches and
examines by itself, so that headers cross no process border; only outcomes do, packed.
"""

import os
import queue
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

from auditor.errors import Reason
from auditor.sweep.budget import Budget
from auditor.sweep.ledger import Waiting
from auditor.sweep.policy import Policy
from auditor.sweep.work import Auditor, Done, failed

# Not fork: this process has threads of its own, httpx2's and rich's, whose locks a copy inherits.
# Not a server of forks: it would keep the HF_ variables of the first sweep for those that follow.
CONTEXT = get_context("spawn")


@dataclass(kw_only=True)
class _Worker:
    """One process, and what it was given."""

    process: BaseProcess
    pipe: Connection
    given: dict[str, tuple[Waiting, float]] = field(default_factory=dict)  # by model, and when
    alone: bool = False  # it has a suspect, and is to have nothing beside it


class Crew:
    """Processes that audit what is submitted; a context manager."""

    def __init__(self, policy: Policy, token: str | None, budget: Budget) -> None:
        self._policy = policy
        self._token = token
        self._budget = budget
        self._workers: list[_Worker] = []
        self._pipes = selectors.DefaultSelector()  # of the workers
        self._suspects: deque[Waiting] = deque()  # each was under way when a process died
        self._blocked = 0.0  # seconds for which the budget let nobody through
        self._looked = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Start the processes, unless they are; they import for 0.4 s before they audit."""
        while len(self._workers) < self._policy.processes:
            self._workers.append(self._started())

    def __exit__(self, *_: object) -> None:
        self._pipes.close()
        for worker in self._workers:
            worker.pipe.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    @property
    def under_way(self) -> int:
        return sum(len(worker.given) for worker in self._workers) + len(self._suspects)

    @property
    def has_room(self) -> bool:
        """Whether a model that is submitted now is begun now."""
        return any(self._has_room(worker) for worker in self._workers)

    def submit(self, waiting: Waiting) -> None:
        """Give a model to the process that has the fewest."""
        free = [worker for worker in self._workers if self._has_room(worker)]
        self._give(min(free, key=lambda worker: len(worker.given)), waiting)

    def finished(self, seconds: float) -> Iterator[Done]:
        """What is done within so many seconds; ends the processes that can do no more."""
        self._clock()
        for ready, _ in self._pipes.select(seconds):
            yield from self._received(ready.data)
        for worker in [worker for worker in self._workers if self._hopeless(worker)]:
            worker.process.kill()  # its pipe ends, and says so at the next call
        self._try_suspects()

    def blocked(self) -> float:
        return self._budget.blocked()

    def _has_room(self, worker: _Worker) -> bool:
        return not worker.alone and len(worker.given) < self._policy.at_once

    def _received(self, worker: _Worker) -> Iterator[Done]:
        try:
            while True:
                done: Done = worker.pipe.recv()
                worker.given.pop(done.model)
                worker.alone = False
                yield done
                if not worker.pipe.poll():
                    return
        except (EOFError, OSError):
            yield from self._died(worker)

    def _died(self, worker: _Worker) -> Iterator[Done]:
        """Put another in its place. A model that was alone with it is to blame; of many, any."""
        self._pipes.unregister(worker.pipe)
        worker.pipe.close()
        worker.process.join()
        self._workers[self._workers.index(worker)] = self._started()
        lost = [waiting for waiting, _ in worker.given.values()]
        if not worker.alone:
            self._suspects.extend(lost)
            return
        for waiting in lost:
            how = f"exit code {worker.process.exitcode}"
            detail = f"the process that audited it ended with {how}, and it was alone with it"
            yield failed(waiting, Reason.CRASHED, detail)

    def _try_suspects(self) -> None:
        """Give each suspect to a process that has nothing else."""
        for worker in self._workers:
            if self._suspects and not worker.given:
                worker.alone = True
                self._give(worker, self._suspects.popleft())

    def _give(self, worker: _Worker, waiting: Waiting) -> None:
        worker.given[waiting.model] = (waiting, time.monotonic() - self._blocked)
        with suppress(OSError):  # it has died: its pipe says so when it is read
            worker.pipe.send(waiting)

    def _hopeless(self, worker: _Worker) -> bool:
        now = time.monotonic() - self._blocked
        return any(now - since > self._policy.hopeless for _, since in worker.given.values())

    def _clock(self) -> None:
        """Time for which the budget holds everybody back is nobody's fault."""
        now = time.monotonic()
        if self._budget.blocked():
            self._blocked += now - self._looked
        self._looked = now

    def _started(self) -> _Worker:
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(
            target=_serve, args=(there, self._policy, self._token, self._budget), daemon=True
        )
        process.start()
        there.close()
        worker = _Worker(process=process, pipe=here)
        self._pipes.register(here, selectors.EVENT_READ, worker)
        return worker


def _serve(pipe: Connection, policy: Policy, token: str | None, budget: Budget) -> None:
    """Audit what comes through the pipe until it closes, which it does when the sweep dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's goes to the whole group
    auditor = Auditor(policy, token, budget)
    tasks: queue.SimpleQueue[Waiting] = queue.SimpleQueue()
    sending = threading.Lock()

    def work() -> None:
        while True:
            done = auditor.audit(tasks.get())
            with sending, suppress(OSError):
                pipe.send(done)

    for _ in range(policy.at_once):
        threading.Thread(target=work, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            tasks.put(pipe.recv())
    os._exit(0)  # threads may sit in a read for seconds yet; nothing of theirs is worth waiting for
