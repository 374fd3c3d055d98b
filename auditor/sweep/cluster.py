"""Dask workers, on one machine or many, that audit the models of a sweep instead of threads.

Each model is a task, and outcomes are recorded as they arrive; workers never open the store. Dask
restarts a worker that dies and gives its models to another one; a model whose workers die
repeatedly fails, and the pool audits it alone. A worker reports its waits as events of the cluster.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from multiprocessing import resource_tracker
from threading import Lock
from typing import Any

import distributed
from msgspec.structs import replace

from auditor.downloader.fetching import ignore_message
from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.downloader.waits import ProgressLines, Wait, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.sweep.one_model import Auditor, Done
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.settings import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.worker_pool import RESUME

_LOOK = 2.0  # seconds between checks of the workers
_CONNECTING = 10.0  # seconds for a scheduler to answer, and to end
_ALONE = 60.0  # seconds without any worker after which a sweep ends; nannies restart workers in 2
_SWEEPS = 4  # most sweeps that one worker serves at a time
_SILENT = logging.CRITICAL + 1  # level of the logs: connections that are lost are tracebacks there


class DaskWorkers:
    """The workers of a scheduler, or `policy.processes` workers on this machine."""

    def __init__(
        self, policy: Policy, token: str | None, waits: Waits, scheduler: str | None = None
    ) -> None:
        """Connect; raise SourceError if the scheduler does not answer or no worker can start."""
        # They log tracebacks when a connection is lost; our message of one line is enough.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(_SILENT)
        self._scheduler = scheduler
        self.at_once = 0  # threads of all workers
        self._looked = self._seen = time.monotonic()  # last check, and last one with a worker
        with ExitStack() as opened:
            address = scheduler or opened.enter_context(_local_workers(policy, token))
            self._client = self._connected(address)
            workers = len(self._threads())
            self._opened = opened.pop_all()
        self._tasks: dict[Future[Done | None], Any] = {}  # Dask drops a task that is not kept
        topic = f"hf-audit-{self._client.id}"
        self._client.subscribe_topic(
            topic, lambda event: waits.tell(self, Wait(*event[1]) if event[1] else None)
        )
        most = policy.max_requests and max(1, policy.max_requests // max(1, workers))
        self._arguments = (replace(policy, max_requests=most), terms(token), topic)

    def _connected(self, address: str) -> Any:
        try:
            return distributed.Client(  # type: ignore[no-untyped-call]
                address, timeout=_CONNECTING, set_as_default=False, name="hf-audit"
            )
        except ValueError as error:
            detail = f"{error}; expected tcp://HOST:PORT"
            raise UsageError(f"--scheduler {quoted(address)}: {detail}") from None
        except OSError as error:
            raise self._lost(f"does not answer: {error}") from None

    def submit(self, waiting: Waiting, *, alone: bool) -> Future[Done | None]:
        outcome: Future[Done | None] = Future()
        task = self._client.submit(audit_model, waiting, *self._arguments, alone=alone, pure=False)
        self._tasks[outcome] = task
        task.add_done_callback(lambda _: self._pass_on(outcome))
        return outcome

    def _pass_on(self, outcome: Future[Done | None]) -> None:
        """Complete an outcome; if it died with its worker, its future has an error."""
        try:
            outcome.set_result(self._tasks.pop(outcome).result(timeout=_CONNECTING))
        except CancelledError:
            outcome.cancel()
            outcome.set_running_or_notify_cancel()
        except BaseException as error:  # noqa: BLE001 - any error of an audit or of Dask
            outcome.set_exception(error)

    def check(self) -> None:
        now = time.monotonic()
        if self.at_once and now - self._looked < _LOOK:
            return
        threads = self._threads()
        self.at_once, self._looked = sum(threads.values()), now
        if threads:
            self._seen = now
        elif now - self._seen > _ALONE:
            raise self._lost(f"has had no worker for {_ALONE:.0f} s")

    def is_idle(self) -> bool:
        try:
            return bool(self.at_once) and not any(self._client.processing().values())
        except (OSError, CancelledError) as error:
            raise self._lost(f"is gone ({type(error).__name__})") from None

    def close(self) -> None:
        with self._opened, suppress(OSError, TimeoutError, CancelledError):
            self._client.close(timeout=_CONNECTING)

    def _threads(self) -> dict[str, int]:
        """Return the number of threads of each worker, by its address."""
        try:
            return dict(self._client.nthreads())
        except (OSError, CancelledError) as error:
            raise self._lost(f"is gone ({type(error).__name__})") from None

    def _lost(self, observation: str) -> SourceError:
        name = f"scheduler {quoted(self._scheduler)}" if self._scheduler else "local cluster"
        return SourceError(Reason.UNREACHABLE, f"the {name} {observation}; {RESUME}")


# --- workers on this machine ----------------------------------------------------------------------


@contextmanager
def _local_workers(policy: Policy, token: str | None) -> Iterator[str]:
    """Start workers and yield their scheduler's address; raise SourceError on failure.

    The workers end by themselves if the sweep's process dies.
    """
    # The scheduler can read tasks, and a token in them; environment variables are inherited.
    environment = {"HF_TOKEN": token, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"} if token else {}
    # A terminal sends Ctrl-C and a hang-up to its whole process group. Processes and threads that
    # start here block both, so only the sweep's main thread handles them. In Python 3.11 a thread
    # that starts the resource tracker unblocks Ctrl-C, so the tracker is started before blocking.
    with _signals_blocked():
        cluster = _started_cluster(policy, environment)
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


def _started_cluster(policy: Policy, environment: dict[str, str]) -> Any:
    try:
        return distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=policy.processes,
            threads_per_worker=policy.at_once,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None would listen on all addresses
            scheduler_kwargs={"dashboard": False},
            silence_logs=_SILENT,
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

_opening = Lock()


def audit_model(
    waiting: Waiting, policy: Policy, expected_terms: tuple[str, ...], topic: str, *, alone: bool
) -> Done | None:
    """Audit a model on this worker, as `Auditor.audit` does.

    Raise UsageError if this worker's `terms` differ from `expected_terms`, those of the sweep.
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
        auditor = _auditor(policy, token, topic)
    return auditor.audit(waiting, alone=alone)


@lru_cache(_SWEEPS)
def _auditor(policy: Policy, token: str | None, topic: str) -> Auditor:
    """Return this process's auditor for a sweep; models share its connections and rate limits."""
    worker = distributed.get_worker()

    def show(wait: Wait | None) -> None:
        worker.log_event(topic, wait and tuple(wait))

    return Auditor(
        policy, token, RateLimiter(policy.max_requests), ProgressLines(ignore_message, Waits(show))
    )


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
