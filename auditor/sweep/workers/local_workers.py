"""Dask workers on this machine: processes that are started with a sweep, and end with it."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from auditor.errors import Reason, SourceError

# Of each worker. A batch has one until its last model is done, and there should be more models
# under way than the rest of two.
_THREADS = 4
_CLOSING = 10.0  # seconds


class LocalWorkers:
    """Dask's LocalCluster; where the sweep's process dies, its workers see that, and end."""

    def __init__(self, dask: Any, count: int, token: str | None) -> None:
        self._dask = dask
        self._count = count
        # A task, and so a token in it, would be seen by the scheduler; this is inherited.
        self._environment = (
            {"HF_TOKEN": token, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"} if token else {}
        )
        self._cluster: Any = None

    def start(self) -> str:
        """The address of their scheduler; raises SourceError where they do not start."""
        try:
            with _unheard():
                self._cluster = self._dask.LocalCluster(
                    n_workers=self._count,
                    threads_per_worker=_THREADS,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # None takes a port of all addresses
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                    env=self._environment,
                )
        except (OSError, RuntimeError) as error:
            detail = f"no workers could be started on this machine: {error}"
            raise SourceError(Reason.UNREACHABLE, detail) from None
        return str(self._cluster.scheduler_address)

    def close(self) -> None:
        """End them at once: left alone they would end their waits first."""
        if self._cluster is None:
            return
        for nanny in self._cluster.workers.values():
            nanny.close_gracefully()  # it is not to start another one
            if pid := nanny.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._cluster.close(timeout=_CLOSING)


@contextmanager
def _unheard() -> Iterator[None]:
    """What is started within hears no Ctrl-C and no hang-up, which go to a terminal's whole group.

    Nor do the threads that are: a signal is the sweep's main thread's.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
