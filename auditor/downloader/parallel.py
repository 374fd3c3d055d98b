"""Concurrent reads: one scheduler for headers, indexes, companion files, numbers and digests.

Reads begin in the order of submission, a bounded number at a time. They have bounds of their own:
`http` counts the bytes of a model, `headers` those of a header, `local_file` reads block by block.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

AT_HAND = 4  # concurrent reads from a disk

# Seconds after which a wait is interrupted and begun again, so that Python can handle signals in
# the main thread: a signal that arrives just before a wait begins does not end the wait.
_LISTENS = 0.1

_HAS_THREADS = sys.platform != "emscripten"  # Python in a browser has none


def do_nothing() -> None:
    """Do nothing, for waits that show no progress."""


class Scheduler:
    """The calls of one task, which run in the threads of an executor."""

    def __init__(self, executor: Executor | None) -> None:
        """Run the calls in the executor; if it is None, in the thread that submits them."""
        self._executor = executor
        self._futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._executor is None:
            future = Future[T]()
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - raised again by future.result()
                future.set_exception(error)
        else:
            future = self._executor.submit(fn, *args, **kwargs)
        self._futures.append(future)
        return future

    def cancel(self) -> None:
        """Cancel the calls that have not begun."""
        for future in self._futures:
            future.cancel()

    def wait(self) -> None:
        """Wait for the calls in flight; errors stay in their futures."""
        for _ in as_they_end(self._futures):
            pass


@contextmanager
def threads(
    most: int, stop: Callable[[], None], pool: Executor | None = None
) -> Iterator[Scheduler]:
    """Provide a scheduler while the block lasts; it uses the threads of `pool`, or `most` new ones.

    If `most` is 0, or in a browser, the thread that submits a call runs it: small work needs no
    other thread. If the block fails, calls that have not begun are cancelled, and `stop` ends the
    waits of calls in flight. At its end the block waits for the calls in flight, which may take
    seconds, unless the user interrupted it. A shared pool stays open.
    """
    own_pool = ThreadPoolExecutor(most) if pool is None and most and _HAS_THREADS else None
    scheduler = Scheduler(pool or own_pool)
    is_waiting = True
    try:
        yield scheduler
    except BaseException as error:
        stop()
        scheduler.cancel()
        is_waiting = isinstance(error, (Exception, GeneratorExit))
        raise
    finally:
        if is_waiting:
            scheduler.wait()
        if own_pool:
            own_pool.shutdown(wait=is_waiting)


def outside_main_thread(work: Callable[[], T]) -> T:
    """Run `work` outside the main thread; return its result or raise its error.

    Python handles signals only in the main thread, and not while it waits in compiled code.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future = Future[T]()
    threading.Thread(target=run_into, args=(future, work), name="request").start()
    return awaited(future)


def run_into(future: Future[T], work: Callable[[], T]) -> None:
    """Run `work` and set the future to its result or error, unless the future was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        future.set_exception(error)


def as_they_end(futures: Sequence[Future[T]]) -> Iterator[Future[T]]:
    """Yield futures as they end, like as_completed, but let the main thread handle signals."""
    pending = list(futures)
    while pending:
        states = [(future, future.done()) for future in pending]
        yield from (future for future, is_done in states if is_done)
        pending = [future for future, is_done in states if not is_done]
        if len(pending) == len(states):
            wait(pending, _LISTENS, FIRST_COMPLETED)


def results(futures: Sequence[Future[T]], idle: Callable[[], None] = do_nothing) -> tuple[T, ...]:
    """Return the results in order, or raise the first error as soon as a future has failed.

    Signals are handled and `idle` is called several times a second.
    """
    while not all(future.done() for future in futures):
        wait(futures, _LISTENS, FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()
        idle()
    return tuple(future.result() for future in futures)


def awaited(future: Future[T], idle: Callable[[], None] = do_nothing) -> T:
    """Return or raise the result of one future, as `results` does."""
    [result] = results([future], idle)
    return result
