"""Audits by the workers of a Dask cluster, on one machine or many, instead of by threads.

Models are sent in batches, and the outcomes are recorded as they arrive; workers never open the
store. If a worker dies, Dask itself gives its batch to another worker. If the workers of a batch
die repeatedly, the batch is split: each of its models is audited with nothing else under way, which
shows the model that ends workers.

Each worker has its share of the request budget, and so its own waits. Its heartbeats report to the
scheduler how many seconds each wait still lasts; clocks of two machines are never compared.
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
from typing import Annotated, Any, Self

import distributed
from msgspec import Meta, Struct, ValidationError, convert, field

from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.downloader.waits import Wait, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.extras import install
from auditor.messages import quoted
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.reading import Recorded
from auditor.sweep.store.schema import StoredObject
from auditor.sweep.workers.audit_threads import YOUNG, AuditThreads, Crew
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Done, failed

# Models of one batch. A worker that dies loses at most this many audits. A batch takes seconds, so
# Dask's 5 ms for a task are negligible.
_MODELS = 32

_BYTES = 1024 * 1024  # bytes of the snapshots and listings of one batch; Dask warns from 10 MB on
_AHEAD = 2  # batches for each thread of a worker: one under way, one waiting
_LOOK = 2.0  # seconds between checks of the workers
_STUCK = 0.5  # seconds between a worker's checks for stuck models
_CONNECTING = 10.0  # seconds for a scheduler to answer, and to end
_METRIC = "hf-audit-waits"  # name of a worker's metric; `waits` returns its value
_OTHER_RESULT = "a worker returned no outcome of this model; install the same version there"
_ALONE = 60.0  # seconds without any worker after which a sweep ends; nannies restart workers in 2
_SWEEPS = 4  # most policies of sweeps that one worker serves at a time

# Threads of each worker on this machine, each with one batch. A batch occupies its thread until its
# last model is done; the last models of two batches alone would leave the worker idle.
_THREADS = 4


class _Metrics(Struct):
    """The waits of a worker's sweeps, in seconds, as its last heartbeat stated them."""

    waits: dict[str, Annotated[float, Meta(ge=0, le=1e9)]] = field(
        name=_METRIC, default_factory=dict
    )


class _Worker(Struct):
    nthreads: Annotated[int, Meta(ge=0, le=1_000_000)]
    metrics: _Metrics


class _Identity(Struct):
    """The scheduler's description of itself."""

    workers: dict[str, _Worker]


class Cluster:
    """A context manager whose workers audit the submitted models, with the interface of a Crew.

    The workers are those of a scheduler, or `policy.processes` workers on this machine.
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
        self._ready: deque[Waiting] = deque()  # submitted, not in a batch yet
        self._suspects: deque[Waiting] = deque()  # models of batches whose workers died
        self._sent: dict[Any, tuple[Waiting, ...]] = {}  # batches, by future
        self._alone: Any = None  # the future of a suspect that is audited alone
        self._arrived: SimpleQueue[Any] = SimpleQueue()  # finished futures
        self._workers, self._threads = 0, 0  # number of workers, and of all their threads
        self._waits_by_worker: dict[str, tuple[float, float]] = {}  # reported seconds, end of wait
        self._looked = self._seen = 0.0  # time of the last check, and of the last one with a worker
        self.under_way = 0

    def __enter__(self) -> Self:
        if self._scheduler:
            self._start()  # report a bad address before there is anything to audit
        return self

    def __exit__(self, *_: object) -> None:
        with self._opened, suppress(OSError, TimeoutError, CancelledError):
            if self._client is not None:
                self._client.cancel(list(self._sent))
                self._client.close(timeout=_CONNECTING)

    def _start(self) -> None:
        """Connect to the scheduler; raise SourceError if it does not answer."""
        # They log tracebacks when a connection is lost; our message of one line is enough.
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
            raise self._lost(f"does not answer: {error}") from None
        self._seen = time.monotonic()

    @property
    def has_room(self) -> bool:
        """Whether another model may be submitted; this limits the memory of this process."""
        slots = _AHEAD * max(1, self._threads)
        return not self._suspects and self.under_way < slots * _MODELS

    def submit(self, waiting: Waiting) -> None:
        self._ready.append(waiting)
        self.under_way += 1

    def finished(self, seconds: float) -> Iterator[Done]:
        """Wait up to `seconds` for outcomes, and yield all that arrived.

        Report a wait if all workers wait for their budgets.
        """
        if self._client is None:
            self._start()
        self._look()
        self._send()
        ends = (end for _, end in self._waits_by_worker.values())
        shortest = min(ends, default=0.0) - time.monotonic()
        wait = Wait("every worker's budget of requests is spent", shortest)
        self._waits.tell(self, wait if shortest > 0 else None)
        with suppress(Empty):
            future = self._arrived.get(timeout=seconds)
            while True:
                for done in self._received(future):
                    self.under_way -= 1
                    yield done
                future = self._arrived.get_nowait()

    def _send(self) -> None:
        if self._suspects and not self._sent:
            self._alone = self._submit_batch((self._suspects.popleft(),))
        if self._suspects or self._alone in self._sent:
            return
        while batch := _next_batch(self._ready):
            self._submit_batch(batch)

    def _submit_batch(self, models: tuple[Waiting, ...]) -> Any:
        """Send a batch to the cluster and return its future."""
        arguments = (models, self._policy, self._terms, self._workers, self._client.id)
        future = self._client.submit(audit_batch, *arguments, pure=False)
        self._sent[future] = models
        future.add_done_callback(self._arrived.put)
        return future

    def _received(self, future: Any) -> Iterator[Done]:
        if future.status == "error":
            yield from self._failed_batch(future, future.exception(_CONNECTING))
            return
        try:
            outcomes = future.result(_CONNECTING)
        except TimeoutError:  # the worker died with the result: Dask computes it again
            future.add_done_callback(self._arrived.put)
            return
        except (CancelledError, OSError) as error:
            raise self._lost(f"has lost its models ({type(error).__name__})") from None
        if not _has_one_of_each(outcomes, self._sent[future]):
            yield from self._failed_batch(future, SourceError(Reason.BAD_RESPONSE, _OTHER_RESULT))
            return
        del self._sent[future]
        yield from outcomes

    def _failed_batch(self, future: Any, error: BaseException) -> Iterator[Done]:
        """Handle a batch without a result.

        A model that was audited alone is the cause, and its outcome is yielded. Otherwise any model
        of the batch may be the cause: all become suspects, to be audited alone.
        """
        models = self._sent.pop(future)
        if isinstance(error, UsageError):
            raise error
        if isinstance(error, ImportError):
            detail = f"a worker cannot audit: {error}; {install('cluster')} there"
            raise UsageError(detail)
        if future is not self._alone:
            self._suspects.extend(models)
            return
        if isinstance(error, SourceError):
            yield failed(models[0], error.reason, str(error))
            return
        detail = f"{type(error).__name__}, and nothing else was under way"
        yield failed(models[0], Reason.CRASHED, f"its audit ended a worker: {detail}")

    def _look(self) -> None:
        """Read the list of workers and their waits.

        Raise SourceError if the scheduler has had no worker for a minute or more.
        """
        now = time.monotonic()
        if self._threads and now - self._looked < _LOOK:
            return
        try:
            identity = self._client.sync(self._client.scheduler.identity)
            workers = convert(identity, _Identity).workers
        except (OSError, CancelledError) as error:
            raise self._lost(f"is gone ({type(error).__name__})") from None
        except ValidationError as error:
            raise self._lost(f"describes its workers in another form: {error}") from None
        self._threads = sum(worker.nthreads for worker in workers.values())
        self._workers, self._looked = len(workers), now
        waits_by_worker: dict[str, tuple[float, float]] = {}
        for name, worker in workers.items():
            seconds = worker.metrics.waits.get(self._client.id)
            before = self._waits_by_worker.get(name)
            if before and before[0] == seconds:  # no heartbeat since the last check
                waits_by_worker[name] = before
            elif seconds is not None:  # None: the worker has no models of this sweep
                waits_by_worker[name] = seconds, now + seconds
        self._waits_by_worker = waits_by_worker
        if workers:
            self._seen = now
        elif now - self._seen > _ALONE:
            raise self._lost(f"has had no worker for {_ALONE:.0f} s")

    def _lost(self, observation: str) -> SourceError:
        remedy = "outcomes are stored, and the same command resumes the sweep"
        name = f"scheduler {quoted(self._scheduler)}" if self._scheduler else "local cluster"
        detail = f"the {name} {observation}; {remedy}"
        return SourceError(Reason.UNREACHABLE, detail)


def _has_one_of_each(outcomes: object, models: tuple[Waiting, ...]) -> bool:
    """Return whether a worker's result has one outcome of each model of its batch."""
    if not isinstance(outcomes, tuple) or not all(map(_is_outcome, outcomes)):
        return False
    commits = [(done.model, done.commit_sha) for done in outcomes]
    return sorted(commits) == sorted((one.model, one.commit_sha) for one in models)


def _is_outcome(done: object) -> bool:
    if not isinstance(done, Done) or not isinstance(done.snapshot, StoredObject | None):
        return False
    return isinstance(done.model, str) and isinstance(done.recorded, Recorded)


def _next_batch(ready: deque[Waiting]) -> tuple[Waiting, ...]:
    """Remove the next batch from the submitted models and return it."""
    batch: list[Waiting] = []
    size = 0
    while ready and len(batch) < _MODELS and size < _BYTES:
        model = ready.popleft()
        size += sum(len(part or b"") for part in (model.snapshot, model.shared, model.listing))
        batch.append(model)
    return tuple(batch)


# --- workers on this machine ----------------------------------------------------------------------


@contextmanager
def _local_workers(count: int, token: str | None) -> Iterator[str]:
    """Start `count` workers and yield their scheduler's address; raise SourceError on failure.

    The workers end by themselves if the sweep's process dies.
    """
    # The scheduler can read tasks, and a token in them; environment variables are inherited.
    environment = {"HF_TOKEN": token, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"} if token else {}
    # A terminal sends Ctrl-C and a hang-up to its whole process group. Processes and threads that
    # start here block both, so only the sweep's main thread handles them. In Python 3.11 a thread
    # that starts the resource tracker unblocks Ctrl-C, so the tracker is started before blocking.
    with _signals_blocked():
        cluster = _started_cluster(count, environment)
    try:
        yield str(cluster.scheduler_address)
    finally:
        with suppress(OSError, TimeoutError, CancelledError):
            _end(cluster)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGHUP for processes and threads that start within, if the platform can."""
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
            dashboard_address="127.0.0.1:0",  # None would listen on all addresses
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            env=environment,
        )
    except (OSError, RuntimeError) as error:
        detail = f"no workers could be started on this machine: {error}"
        raise SourceError(Reason.UNREACHABLE, detail) from None


def _end(cluster: Any) -> None:
    """Kill the workers, which would otherwise finish their waits first."""
    for nanny in cluster.workers.values():
        nanny.close_gracefully()  # so that the nanny does not restart its worker
        if pid := nanny.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has no SIGKILL
    cluster.close(timeout=_CONNECTING)


# --- on a worker ----------------------------------------------------------------------------------


_REMEDY = "install the same version, and set HF_ENDPOINT and HF_TOKEN for both: no token is sent"

# (sweep, threads) of each batch under way in this process.
_under_way: list[tuple[str, AuditThreads]] = []

_opening = Lock()


def audit_batch(
    models: tuple[Waiting, ...],
    policy: Policy,
    expected_terms: tuple[str, ...],
    workers: int,
    sweep: str,
) -> tuple[Done, ...]:
    """Audit the models of a batch and return the outcomes, unordered.

    Raise UsageError if this worker's `terms` differ from `expected_terms`, those of the sweep. The
    request budget is divided by the number of `workers`. Several sweeps may share a cluster.
    """
    worker = f"a worker on {quoted(socket.gethostname())}"
    try:
        token = usable_token(None)
        here = terms(token)
    except (SourceError, UsageError) as error:
        raise UsageError(f"{worker} {error}") from None
    for ours, theirs in zip(here, expected_terms, strict=True):
        if ours != theirs:
            raise UsageError(f"{worker} has {ours}, expected {theirs}; {_REMEDY}")
    with _opening:
        threads = _threads(policy, token)
    threads.budget.share = max(1, workers)
    crew, done = Crew(threads), list[Done]()
    _under_way.append((sweep, threads))
    dask = distributed.get_worker()  # its event loop reads the metrics at each heartbeat
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
    """Map each sweep on this worker to the seconds that it still waits for its budget."""
    longest = [(sweep, threads.waits.longest) for sweep, threads in tuple(_under_way)]
    return {sweep: wait.seconds if wait else 0.0 for sweep, wait in longest}


@lru_cache(_SWEEPS)
def _threads(policy: Policy, token: str | None) -> AuditThreads:
    """Return this process's threads for a policy; batches share its connections and caches."""
    gc.set_threshold(YOUNG)
    return AuditThreads(policy, token, Budget(policy.max_requests))


def terms(token: str | None) -> tuple[str, ...]:
    """Return the versions, endpoint and token digest that a sweep and its workers must share.

    They must be equal, because a store does not record which worker wrote an outcome. The token
    itself is not sent.
    """
    versions = current_versions()
    digest = sha256(token.encode()).hexdigest()[:16] if token else ""
    return (
        f"hf-audit {versions.auditor} ({versions.catalogue})",
        f"the Hub {quoted(endpoint())}",
        f"a token (of digest {digest})" if token else "no token",
    )
