"""The processes that audit: each with threads of its own, and expendable.

Processes and not threads alone, because an audit is computing: a model that is like another takes
0.5 ms of processor time, 0.3 of them HTTP, and one that is not 3 ms more. Each process fetches and
examines by itself, so that headers cross no process border; only outcomes do, packed.
"""

import gc
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Self

from auditor.downloader.waits import Wait
from auditor.errors import Reason
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Auditor, Done, failed

# Where this process has one thread, the others are copies of it: they import nothing, for which new
# ones take 0.12 s each, and share its memory. Where it has more, rich's or a caller's, whose locks
# a copy would inherit, they are new ones. Not a server of forks: it would keep the HF_ variables of
# the first sweep for those that follow. Locks are such that both can share them.
CONTEXT = get_context("spawn")

# Objects made before cycles are looked for among them. A model makes ten thousand, nearly all of
# which go when it is done, and looking for cycles among every 700 takes a tenth of the time.
_YOUNG = 20_000

_OUT_OF_MEMORY = 12  # exit code of a process: ENOMEM
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Token = Callable[[], str | None]  # looked up once processes have started, which takes as long


@dataclass(kw_only=True)
class _Worker:
    """One process, and what it was given."""

    process: BaseProcess
    pipe: Connection
    given: dict[str, tuple[Waiting, float]] = field(default_factory=dict)  # by model, and when
    alone: bool = False  # it has a suspect, and is to have nothing beside it


class Crew:
    """Processes that audit what is submitted; a context manager."""

    def __init__(self, policy: Policy, token: Token, budget: Budget) -> None:
        self._policy = policy
        self._token = token
        self._budget = budget
        self._workers: list[_Worker] = []
        self._pipes = selectors.DefaultSelector()  # of the workers
        self._suspects: deque[Waiting] = deque()  # each was under way when a process died
        self._blocked = 0.0  # seconds for which the budget let no request through
        self._looked = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Start the processes, unless they are; the token is looked up while they import."""
        before = len(self._workers)
        while len(self._workers) < self._policy.processes:
            self._workers.append(self._started())
        for worker in self._workers[before:]:
            self._introduce(worker)

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
        """What is done within that many seconds; ends the processes that can do no more."""
        self._clock()
        for ready, _ in self._pipes.select(seconds):
            yield from self._received(ready.data)
        for worker in [worker for worker in self._workers if self._hopeless(worker)]:
            worker.process.kill()  # its pipe ends, and says so at the next call
        self._try_suspects()

    def waiting(self) -> Wait | None:
        return self._budget.waiting()

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
        other = self._workers[self._workers.index(worker)] = self._started()
        self._introduce(other)
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

    def _introduce(self, worker: _Worker) -> None:
        """Send a process that has started what it waits for before anything else."""
        token = self._token()
        with suppress(OSError):  # it has died: its pipe says so when it is read
            worker.pipe.send(token)

    def _give(self, worker: _Worker, waiting: Waiting) -> None:
        worker.given[waiting.model] = (waiting, time.monotonic() - self._blocked)
        with suppress(OSError):  # as above
            worker.pipe.send(waiting)

    def _hopeless(self, worker: _Worker) -> bool:
        now = time.monotonic() - self._blocked
        return any(now - since > self._policy.hopeless for _, since in worker.given.values())

    def _clock(self) -> None:
        """Time for which the budget holds all requests back counts against no process."""
        now = time.monotonic()
        if self._budget.blocked():
            self._blocked += now - self._looked
        self._looked = now

    def _started(self) -> _Worker:
        here, there = CONTEXT.Pipe()
        context: BaseContext = CONTEXT
        inherited: tuple[Connection, ...] = ()
        if _has_one_thread():
            context = get_context("fork")
            inherited = (here, *(worker.pipe for worker in self._workers))
        process = context.Process(  # type: ignore[attr-defined] # typeshed has it in each kind
            target=_serve, args=(there, self._policy, self._budget, inherited), daemon=True
        )
        with _unheard():
            process.start()
        there.close()
        worker = _Worker(process=process, pipe=here)
        self._pipes.register(here, selectors.EVENT_READ, worker)
        return worker


@contextmanager
def _unheard() -> Iterator[None]:
    """What is started within hears no signal that ends a program until it has said what to do."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _has_one_thread() -> bool:
    """Whether this process has no other, be it Python's or a library's; False: not known."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - numbers, not paths
    except OSError:
        return False


def _serve(
    pipe: Connection, policy: Policy, budget: Budget, inherited: Iterable[Connection]
) -> None:
    """Audit what comes through the pipe until it closes, which it does when the sweep dies.

    A copy of the sweep's process holds the sweep's ends of pipes, too, and would keep them open.
    """
    for number in _ENDING:  # the terminal's go to the whole group; a pipe that ends is enough
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    gc.set_threshold(_YOUNG)
    for other in inherited:
        other.close()
    auditor = Auditor(policy, _token(pipe), budget)
    receiving, sending = threading.Lock(), threading.Lock()

    def work() -> None:
        with _ending():
            while True:
                with receiving:
                    waiting = pipe.recv()
                done = auditor.audit(waiting)
                with sending:
                    pipe.send(done)

    # And this thread: one always listens, and sees at once that the sweep has died.
    for _ in range(policy.at_once):
        threading.Thread(target=work, daemon=True).start()
    work()


def _token(pipe: Connection) -> str | None:
    with _ending():
        token: str | None = pipe.recv()
    return token


@contextmanager
def _ending() -> Iterator[None]:
    """End the process where the pipe has ended, or where memory has.

    Its threads may sit in a read for seconds yet; nothing of theirs is worth waiting for. Without
    memory it can do no more, and the sweep finds out which model was to blame.
    """
    try:
        yield
    except (EOFError, OSError):
        os._exit(0)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
