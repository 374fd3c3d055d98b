"""The workers of a Dask cluster, on this machine or on many, in the place of a sweep's threads.

What waits is sent in batches, and what came of each is recorded as it arrives; the store is never
seen by a worker. A batch whose worker dies is given to another one by Dask itself. One whose
workers die again and again is taken apart: each of its models goes alone, with nothing else under
way, so that it is known who is to blame.

Each worker has its share of the budget of requests, and so a wait of its own, which its heartbeats
tell the scheduler as a metric, in seconds: clocks of two machines are never compared.
"""

import gc
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from multiprocessing import resource_tracker
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Self

import distributed

from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.downloader.waits import Wait, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers.audit_threads import YOUNG, AuditThreads, Crew
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Done, failed

# Models of one batch. A worker that dies costs as many audits at most, and a batch of them takes
# seconds, beside which the 5 ms that Dask needs for a task are nothing.
_MODELS = 32

_BYTES = 1024 * 1024  # of the snapshots and listings of one batch; Dask warns from 10 MB on
_AHEAD = 2  # batches for each thread of a worker: one under way, one that waits for it
_LOOK = 2.0  # seconds between looks at the workers
_STUCK = 0.5  # seconds between a worker's looks at models that are stuck
_CONNECTING = 10.0  # seconds until a scheduler has to answer, and has to have ended
_METRIC = "hf-audit-waits"  # of a worker: what `waits` says there
_ALONE = 60.0  # seconds without any worker after which a sweep ends; nannies restart theirs in 2
_SWEEPS = 4  # with another policy each, at once on one cluster

# Of each worker on this machine. A batch has one until its last model is done, and there should be
# more models under way than the rest of two.
_THREADS = 4


class Cluster:
    """Workers that audit what is submitted, as a Crew does; a context manager.

    Those of a scheduler, or as many on this machine as the policy has processes.
    """

    def __init__(
        self, policy: Policy, token: str | None, waits: Waits, scheduler: str | None = None
    ) -> None:
        self._policy = policy
        self._token = token
        self._waits = waits
        self._scheduler = scheduler
        self._terms = terms(token)
        self._opened = ExitStack()
        self._client: Any = None
        self._ready: deque[Waiting] = deque()  # submitted, and in no batch yet
        self._suspects: deque[Waiting] = deque()  # each was in a batch whose workers died
        self._sent: dict[Any, tuple[Waiting, ...]] = {}  # batches, by future
        self._alone: Any = None  # the future of a suspect, while nothing else is under way
        self._arrived: SimpleQueue[Any] = SimpleQueue()  # futures
        self._workers, self._threads = 0, 0  # and threads of all workers
        self._told: dict[str, tuple[float, float]] = {}  # by worker: its wait, and when that ends
        self._looked = self._seen = 0.0  # when that was, and when there last was a worker
        self.under_way = 0

    def __enter__(self) -> Self:
        if self._scheduler:
            self._start()  # whoever named another one hears of it before there is anything to do
        return self

    def __exit__(self, *_: object) -> None:
        with self._opened, suppress(OSError, TimeoutError, CancelledError):
            if self._client is not None:
                self._client.cancel(list(self._sent))
                self._client.close(timeout=_CONNECTING)

    def _start(self) -> None:
        """Connect; raises SourceError if the scheduler does not answer."""
        # They log tracebacks when they lose each other; our own message of one line is enough.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        address = self._scheduler or self._opened.enter_context(
            _local_workers(self._policy.processes, self._token)
        )
        try:
            self._client = distributed.Client(  # type: ignore[no-untyped-call]
                address, timeout=_CONNECTING, set_as_default=False, name="hf-audit"
            )
        except ValueError as error:
            detail = f"{error}; expected tcp://HOST:PORT"
            raise UsageError(f"--scheduler {quoted(address)}: {detail}") from None
        except OSError as error:
            raise self._gone(f"does not answer: {error}") from None
        self._seen = time.monotonic()

    @property
    def has_room(self) -> bool:
        """Whether one more is not too much to have in memory here."""
        slots = _AHEAD * max(1, self._threads)
        return not self._suspects and self.under_way < slots * _MODELS

    def submit(self, waiting: Waiting) -> None:
        self._ready.append(waiting)
        self.under_way += 1

    def finished(self, seconds: float) -> Iterator[Done]:
        """What is done within that many seconds; tells for how long all that work wait yet."""
        if self._client is None:
            self._start()
        self._look()
        self._send()
        first = min((end for _, end in self._told.values()), default=0.0) - time.monotonic()
        wait = Wait("every worker's budget of requests is spent", first)
        self._waits.tell(self, wait if first > 0 else None)
        with suppress(Empty):
            future = self._arrived.get(timeout=seconds)
            while True:
                for done in self._received(future):
                    self.under_way -= 1
                    yield done
                future = self._arrived.get_nowait()

    def _send(self) -> None:
        if self._suspects and not self._sent:
            self._alone = self._give((self._suspects.popleft(),))
        if self._suspects or self._alone in self._sent:
            return
        while batch := _cut(self._ready):
            self._give(batch)

    def _give(self, models: tuple[Waiting, ...]) -> Any:
        """The future of the batch."""
        given = (models, self._policy, self._terms, self._workers, self._client.id)
        future = self._client.submit(audit_batch, *given, pure=False)
        self._sent[future] = models
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
        del self._sent[future]
        yield from found

    def _raised(self, future: Any, error: BaseException) -> Iterator[Done]:
        """A batch without a result: any of the models under way may be to blame, or one alone."""
        models = self._sent.pop(future)
        if isinstance(error, UsageError):
            raise error
        if isinstance(error, ImportError):
            detail = f"a worker cannot audit: {error}; install hf-audit[cluster] there"
            raise UsageError(detail)
        if future is not self._alone:
            self._suspects.extend(models)
            return
        said = f"{type(error).__name__}, and nothing else was under way"
        yield failed(models[0], Reason.CRASHED, f"its audit ended a worker: {said}")

    def _look(self) -> None:
        """See the workers and their waits; raises SourceError after too long without any."""
        now = time.monotonic()
        if self._threads and now - self._looked < _LOOK:
            return
        try:
            workers = self._client.sync(self._client.scheduler.identity)["workers"]
        except (OSError, CancelledError) as error:
            raise self._gone(f"is gone ({type(error).__name__})") from None
        self._threads = sum(worker["nthreads"] for worker in workers.values())
        self._workers, self._looked = len(workers), now
        told: dict[str, tuple[float, float]] = {}
        for name, worker in workers.items():
            seconds = worker["metrics"].get(_METRIC, {}).get(self._client.id)
            before = self._told.get(name)
            if before and before[0] == seconds:  # it has not been heard of since
                told[name] = before
            elif seconds is not None:  # None: it has no work of ours
                told[name] = seconds, now + seconds
        self._told = told
        if workers:
            self._seen = now
        elif now - self._seen > _ALONE:
            raise self._gone(f"has had no worker for {_ALONE:.0f} s")

    def _gone(self, what: str) -> SourceError:
        kept = "what is audited is kept, and the same command goes on from there"
        name = f"scheduler {quoted(self._scheduler)}" if self._scheduler else "local cluster"
        detail = f"the {name} {what}; {kept}"
        return SourceError(Reason.UNREACHABLE, detail)


def _cut(ready: deque[Waiting]) -> tuple[Waiting, ...]:
    """The next batch, taken out of what is ready."""
    batch: list[Waiting] = []
    size = 0
    while ready and len(batch) < _MODELS and size < _BYTES:
        one = ready.popleft()
        size += sum(len(held or b"") for held in (one.snapshot, one.shared, one.listing))
        batch.append(one)
    return tuple(batch)


# --- workers on this machine ----------------------------------------------------------------------


@contextmanager
def _local_workers(count: int, token: str | None) -> Iterator[str]:
    """The address of so many workers' scheduler; raises SourceError where they do not start.

    Where the sweep's process dies, they see that, and end.
    """
    # A task, and so a token in it, would be seen by the scheduler; this is inherited.
    environment = {"HF_TOKEN": token, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"} if token else {}
    # Ctrl-C and a hang-up go to a terminal's whole group. What is started here hears neither, nor
    # do the threads that are: a signal is the sweep's main thread's. Whichever thread starts the
    # resource tracker lets Ctrl-C through again, in Python 3.11: not the one that starts workers.
    with _signals_blocked():
        cluster = _started_cluster(count, environment)
    try:
        yield str(cluster.scheduler_address)
    finally:
        with suppress(OSError, TimeoutError, CancelledError):
            _end(cluster)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Within, started processes and threads inherit blocked signals, if the platform has masks."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started_cluster(count: int, environment: dict[str, str]) -> Any:
    try:
        return distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=count,
            threads_per_worker=_THREADS,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None takes a port of all addresses
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            env=environment,
        )
    except (OSError, RuntimeError) as error:
        detail = f"no workers could be started on this machine: {error}"
        raise SourceError(Reason.UNREACHABLE, detail) from None


def _end(cluster: Any) -> None:
    """End the workers at once: left alone they would end their waits first."""
    for nanny in cluster.workers.values():
        nanny.close_gracefully()  # it is not to start another one
        if pid := nanny.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has no SIGKILL
    cluster.close(timeout=_CONNECTING)


# --- on a worker ----------------------------------------------------------------------------------


_REMEDY = "install the same, and set HF_ENDPOINT and HF_TOKEN, which is not sent, where both start"

# The sweep and the threads of each batch that is under way in this process.
_under_way: list[tuple[str, AuditThreads]] = []

_opening = Lock()


def audit_batch(
    models: tuple[Waiting, ...], policy: Policy, due: tuple[str, ...], workers: int, sweep: str
) -> tuple[Done, ...]:
    """What came of the models, in no order; raises UsageError where this worker may not audit.

    The budget of requests is divided among so many `workers`. Several sweeps may share a cluster.
    """
    worker = f"a worker on {quoted(socket.gethostname())}"
    try:
        token = usable_token(None)
        here = terms(token)
    except (SourceError, UsageError) as error:
        raise UsageError(f"{worker} {error}") from None
    for ours, theirs in zip(here, due, strict=True):
        if ours != theirs:
            raise UsageError(f"{worker} has {ours}, and this sweep has {theirs}: {_REMEDY}")
    with _opening:
        threads = _threads(policy, token)
    threads.budget.share = max(1, workers)
    crew, done = Crew(threads), list[Done]()
    _under_way.append((sweep, threads))
    dask = distributed.get_worker()  # whose loop goes through the metrics at each heartbeat
    dask.loop.add_callback(dask.metrics.setdefault, _METRIC, waits)
    try:
        for waiting in models:
            crew.submit(waiting)
        while crew.under_way:
            done += crew.finished(_STUCK)
    finally:
        _under_way.remove((sweep, threads))
    return tuple(done)


def waits(_worker: object = None) -> dict[str, float]:
    """Seconds that each sweep which has work here waits for its budget yet; 0: it does not."""
    longest = [(sweep, threads.waits.longest) for sweep, threads in tuple(_under_way)]
    return {sweep: wait.seconds if wait else 0.0 for sweep, wait in longest}


@lru_cache(_SWEEPS)
def _threads(policy: Policy, token: str | None) -> AuditThreads:
    """Those of this process: its connections, and what it knows of models that are alike."""
    gc.set_threshold(YOUNG)
    return AuditThreads(policy, token, Budget(policy.max_requests))


def terms(token: str | None) -> tuple[str, ...]:
    """What a sweep and its workers must have in common: a store says nothing of workers.

    Of a token there is a digest: a cluster's connections are no place for one.
    """
    versions = current_versions()
    digest = sha256(token.encode()).hexdigest()[:16] if token else ""
    return (
        f"hf-audit {versions.auditor} ({versions.catalogue})",
        f"the Hub {quoted(endpoint())}",
        f"a token (of digest {digest})" if token else "no token",
    )
