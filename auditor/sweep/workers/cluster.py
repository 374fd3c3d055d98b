"""The workers of a Dask cluster, on this machine or on many, in the place of a sweep's threads.

What waits is sent in batches, and what came of each is recorded as it arrives; the store is never
seen by a worker. A batch whose worker dies is given to another one by Dask itself. One whose
workers die again and again is taken apart: each of its models goes alone, with nothing else under
way, so that it is known who is to blame.

Each worker has its share of the budget of requests, and so a wait of its own, which it tells
through the scheduler, as an event. A wait is told as seconds, which whoever hears of it counts
down: clocks of two machines are never compared.
"""

import importlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Self

from auditor.downloader.waits import Wait
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers.cluster_worker import Batch, RefusedBatch, audit_batch, terms
from auditor.sweep.workers.local_workers import LocalWorkers
from auditor.sweep.workers.one_model import Done, failed

# Models of one batch. A worker that dies costs as many audits at most, and a batch of them takes
# seconds, beside which the 5 ms that Dask needs for a task are nothing.
_MODELS = 32

_BYTES = 1024 * 1024  # of the snapshots and listings of one batch; Dask warns from 10 MB on
_AHEAD = 2  # batches for each thread of a worker: one under way, one that waits for it
_LOOK = 2.0  # seconds between looks at who the workers are
_CONNECTING = 10.0  # seconds until a scheduler has to answer
_TOPIC = "hf-audit-waits"  # of the events; one for all sweeps, as a scheduler keeps each topic
_SWEEPS = 16  # of which a worker knows what it told them; one more, and another is told again
_ALONE = 60.0  # seconds without any worker after which a sweep ends; nannies restart theirs in 2


class Cluster:
    """Workers that audit what is submitted; a context manager, as a Crew is.

    Those of a scheduler, or as many on this machine as the policy has processes.
    """

    def __init__(self, policy: Policy, token: str | None, scheduler: str | None = None) -> None:
        self._scheduler = scheduler
        self._policy = policy
        self._terms = terms(token)
        self._dask = _library("--scheduler" if scheduler else "--processes")
        self._local = None if scheduler else LocalWorkers(self._dask, policy.processes, token)
        self._client: Any = None
        self._ready: deque[Waiting] = deque()  # submitted, and in no batch yet
        self._suspects: deque[Waiting] = deque()  # each was in a batch whose workers died
        self._sent: dict[Any, Batch] = {}  # by future
        self._alone: Any = None  # the future of a suspect, while nothing else is under way
        self._count = 0  # models that are submitted and not done
        self._arrived: SimpleQueue[Any] = SimpleQueue()  # futures
        self._threads: dict[str, int] = {}  # of each worker
        self._working: frozenset[str] = frozenset()  # workers that have some of what was sent
        self._waits = ClusterWaits()
        self._looked = self._seen = 0.0  # when that was, and when there last was one

    def __enter__(self) -> Self:
        if self._scheduler:
            self.start()  # whoever named another one hears of it before there is anything to do
        return self

    def start(self) -> None:
        """Connect, unless that is done; raises SourceError if the scheduler does not answer."""
        if self._client is not None:
            return
        # They log tracebacks when they lose each other; our own message of one line is enough.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        address = self._local.start() if self._local else self._scheduler or ""
        self._client = self._connected(address)
        self._client.subscribe_topic(_TOPIC, self._hear)
        self._seen = time.monotonic()
        self._look()

    def _connected(self, scheduler: str) -> Any:
        try:
            return self._dask.Client(
                scheduler, timeout=_CONNECTING, set_as_default=False, name="hf-audit"
            )
        except ValueError as error:
            detail = f"{error}; expected tcp://HOST:PORT"
            raise UsageError(f"--scheduler {quoted(scheduler)}: {detail}") from None
        except OSError as error:
            raise self._gone(f"does not answer: {error}") from None

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            with suppress(OSError, TimeoutError, CancelledError):
                self._client.cancel(list(self._sent))
                self._client.close(timeout=_CONNECTING)
        if self._local is not None:
            with suppress(OSError, TimeoutError, CancelledError):
                self._local.close()

    @property
    def under_way(self) -> int:
        return self._count

    @property
    def has_room(self) -> bool:
        """Whether one more is not too much to have in memory here."""
        slots = _AHEAD * max(1, sum(self._threads.values()))
        return not self._suspects and self._count < slots * _MODELS

    def submit(self, waiting: Waiting) -> None:
        self._ready.append(waiting)
        self._count += 1

    def finished(self, seconds: float) -> Iterator[Done]:
        """What is done within that many seconds."""
        self._look()
        self._send()
        with suppress(Empty):
            future = self._arrived.get(timeout=seconds)
            while True:
                for done in self._received(future):
                    self._count -= 1
                    yield done
                future = self._arrived.get_nowait()

    def waiting(self) -> Wait | None:
        """Until the first worker goes on; None: one that has work does not wait, or none has.

        Of a worker that was given work since the last look it does not know yet.
        """
        seconds = self._waits.shortest(self._working)
        return Wait("every worker's budget of requests is spent", seconds) if seconds else None

    def _hear(self, event: tuple[float, object]) -> None:
        """What a worker tells; called by Dask's thread, with what is told to other sweeps too."""
        match event[1]:
            case {"sweep": self._client.id, "worker": str(worker), "seconds": float(seconds)}:
                self._waits.told(worker, seconds)

    def _send(self) -> None:
        if self._suspects:
            if not self._sent:
                self._alone = self._give((self._suspects.popleft(),))
            return
        while batch := _cut(self._ready):
            self._give(batch)

    def _give(self, models: tuple[Waiting, ...]) -> Any:
        """The future of the batch."""
        share = max(1, len(self._threads))
        batch = Batch(models=models, policy=self._policy, terms=self._terms, share=share)
        future = self._client.submit(_work, batch, self._client.id, pure=False)
        self._sent[future] = batch
        future.add_done_callback(self._arrived.put)
        return future

    def _received(self, future: Any) -> Iterator[Done]:
        if future.status == "error":
            yield from self._raised(future, future.exception(_CONNECTING))
            return
        try:
            found = future.result(_CONNECTING)
        except TimeoutError:  # its worker died with the result: Dask has it worked out once more
            future.add_done_callback(self._arrived.put)
            return
        except (CancelledError, OSError) as error:
            raise self._gone(f"has lost what it was given ({type(error).__name__})") from None
        if isinstance(found, RefusedBatch):
            raise UsageError(found.detail)
        del self._sent[future]
        yield from found

    def _raised(self, future: Any, error: BaseException) -> Iterator[Done]:
        """A batch without a result: any of the models under way may be to blame, or one alone."""
        batch = self._sent.pop(future)
        if isinstance(error, ImportError):
            detail = f"a worker cannot audit: {error}; install hf-audit[cluster] there"
            raise UsageError(detail)
        if future is not self._alone:
            self._suspects.extend(batch.models)
            return
        said = f"{type(error).__name__}, and nothing else was under way"
        yield failed(batch.models[0], Reason.CRASHED, f"its audit ended a worker: {said}")

    def _look(self) -> None:
        """See the workers, and which have work; raises SourceError after too long without any."""
        now = time.monotonic()
        if self._threads and now - self._looked < _LOOK:
            return
        try:
            threads = self._client.nthreads()
            processing = self._client.processing()
        except (OSError, CancelledError) as error:
            raise self._gone(f"is gone ({type(error).__name__})") from None
        self._waits.forget(self._threads.keys() - threads.keys())
        ours = {future.key for future in self._sent}
        self._working = frozenset(
            worker for worker, keys in processing.items() if not ours.isdisjoint(keys)
        )
        self._threads, self._looked = threads, now
        if self._threads:
            self._seen = now
        elif now - self._seen > _ALONE:
            raise self._gone(f"has had no worker for {_ALONE:.0f} s")

    def _gone(self, what: str) -> SourceError:
        kept = "what is audited is kept, and the same command goes on from there"
        name = f"scheduler {quoted(self._scheduler)}" if self._scheduler else "local cluster"
        detail = f"the {name} {what}; {kept}"
        return SourceError(Reason.UNREACHABLE, detail)


_CHANGE = 1.0  # seconds; the Hub's `t` is whole, so that a wait that is the same may differ by less
_EVERY = 1.0  # seconds between two tellings


class News:
    """What a client was told of one worker's wait; the threads of the worker share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._until = self._told = -math.inf

    def is_due(self, seconds: float) -> bool:
        """Whether to tell of a wait of that many seconds; if so, it counts as told."""
        with self._lock:
            now = self._clock()
            believed = max(0.0, self._until - now)
            if abs(seconds - believed) < _CHANGE or now - self._told < _EVERY:
                return False
            self._until, self._told = now + seconds, now
            return True


class ClusterWaits:
    """What the workers told; a thread may tell while another asks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}  # by worker; one that never waited is not there

    def told(self, worker: str, seconds: float) -> None:
        self._until[worker] = self._clock() + seconds

    def forget(self, workers: Iterable[str]) -> None:
        """These are gone; another may have the address of one."""
        for worker in workers:
            self._until.pop(worker, None)

    def shortest(self, working: Iterable[str]) -> float:
        """Seconds until the first of these workers goes on; 0: one does not wait, or none works."""
        now = self._clock()
        left = (self._until.get(worker, now) - now for worker in working)
        return max(0.0, min(left, default=0.0))


def _work(batch: Batch, sweep: str) -> tuple[Done, ...] | RefusedBatch:
    """Audit a batch on a worker, which tells the client what it waits."""
    worker = importlib.import_module("distributed").get_worker()
    news = _news(worker.address, sweep)

    def tell(seconds: float) -> None:
        if news.is_due(seconds):
            worker.log_event(_TOPIC, {"sweep": sweep, "seconds": seconds})  # Dask adds the address

    return audit_batch(batch, tell)


@lru_cache(_SWEEPS)
def _news(worker: str, sweep: str) -> News:
    """What this sweep was told; all batches of it that this worker has under way share that."""
    del worker, sweep
    return News()


def _cut(ready: deque[Waiting]) -> tuple[Waiting, ...]:
    """The next batch, taken out of what is ready."""
    batch: list[Waiting] = []
    size = 0
    while ready and len(batch) < _MODELS and size < _BYTES:
        one = ready.popleft()
        size += sum(len(held or b"") for held in (one.snapshot, one.shared, one.listing))
        batch.append(one)
    return tuple(batch)


def _library(option: str) -> Any:
    """Dask's distributed; raises UsageError where it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        detail = f"{option} needs Dask: pip install 'hf-audit[cluster]'"
        raise UsageError(detail) from None
