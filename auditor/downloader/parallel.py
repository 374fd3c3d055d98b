"""The scheduler of concurrent reads, and waits for their results.

All reads that may run concurrently go through a Scheduler: headers, indexes, companion files, spans
of numbers, digests. It decides which read begins next (the one that was submitted first) and how
many are in flight; a pool has the threads. The reads have bounds of their own: `http` counts the
bytes of a model, `headers` those of a header, `local_file` reads block by block.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, as_completed
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

T = TypeVar("T")

AT_HAND = 4  # concurrent reads from a near source, such as a disk
_NEAR = 0.005  # a source is near if it answers in so many seconds; the Hub takes longer
_SLOW = 0.05  # seconds for one read; a near disk or server needs a few thousandths

# Seconds after which a wait is interrupted and begun again, so that Python can handle signals in
# the main thread: a signal that arrives just before a wait begins does not end the wait.
_LISTENS = 0.1

_HAS_THREADS = sys.platform != "emscripten"  # Python in a browser has none


def do_nothing() -> None:
    """Do nothing, for waits that show no progress."""


class Scheduler(Executor):
    """An executor that begins calls in the order of submission, a bounded number at a time.

    At most `most` calls are in flight, or AT_HAND if the source is near. `distance()` is the time
    of the source's quickest answer so far, in seconds. Many threads cost memory, because each has
    its own arena, and time, because only one at a time runs Python: to read the 163 shards of
    DeepSeek-V3 from a near source, 64 threads take 50 MB and 10 % more time than 4.

    A near mirror may fetch files from far away, or send them slowly: after AT_HAND slow calls in a
    row, the source counts as distant.

    If `most` is 0, or in a browser, the thread that submits a call runs it: small work needs no
    other thread.
    """

    def __init__(
        self,
        most: int,
        pool: Executor | None = None,
        distance: Callable[[], float] = lambda: inf,
    ) -> None:
        """Run the calls in the threads of a shared pool, or of a new pool."""
        self._pool = pool or ThreadPoolExecutor(max(1, most))
        self._is_own_pool = pool is None
        self._most, self._distance = most if _HAS_THREADS else 0, distance
        self._lock = threading.Lock()
        self._waiting = deque[tuple[Future[Any], Callable[[], Any]]]()
        self._futures = list[Future[Any]]()
        self._in_flight = 0  # threads of the pool that run calls of this scheduler, or are about to
        self._slow = 0  # slow calls in a row; with AT_HAND of them the source is distant

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future, call = Future[T](), partial(fn, *args, **kwargs)
        if not self._most:
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - raised again by future.result()
                future.set_exception(error)
            return future
        with self._lock:
            self._futures.append(future)
            self._waiting.append((future, call))
        self._start_threads(1)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as an Executor has it
        """Wait for the calls of this scheduler; a shared pool stays open."""
        if cancel_futures:
            self._cancel_waiting()
        if wait:
            for _ in as_they_end(self._futures):
                pass
        if self._is_own_pool:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def _start_threads(self, most: int) -> None:
        """Make up to `most` threads of the pool run waiting calls, within the limit."""
        with self._lock:
            count = max(0, min(most, self._limit() - self._in_flight))
            self._in_flight += count
        for _ in range(count):
            self._pool.submit(self._run).add_done_callback(self._require_run)

    def _limit(self) -> int:
        is_near = self._slow < AT_HAND and self._distance() < _NEAR
        return min(AT_HAND, self._most) if is_near else self._most

    def _run(self) -> None:
        """Run waiting calls one after another, until no call may start."""
        while waiting := self._next():
            since = time.monotonic()
            run_into(*waiting)
            if self._slow < AT_HAND:
                self._slow = self._slow + 1 if time.monotonic() - since > _SLOW else 0
                if self._slow == AT_HAND:
                    self._start_threads(len(self._waiting))

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Remove and return the first waiting call.

        Return None, and count one thread less, if no call waits or too many threads run.
        """
        with self._lock:
            if self._waiting and self._in_flight <= self._limit():
                return self._waiting.popleft()
            self._in_flight -= 1
            return None

    def _require_run(self, thread: Future[None]) -> None:
        """Cancel the waiting calls if the owner of the pool has shut it down."""
        if thread.cancelled():
            self._cancel_waiting()

    def _cancel_waiting(self) -> None:
        with self._lock:
            cancelled = [future for future, _ in self._waiting if future.cancel()]
            self._waiting.clear()
        for future in cancelled:
            future.set_running_or_notify_cancel()  # only then as_completed treats it as ended


@contextmanager
def threads(
    most: int,
    stop: Callable[[], None],
    pool: Executor | None = None,
    distance: Callable[[], float] = lambda: inf,
) -> Iterator[Scheduler]:
    """Provide a scheduler while the block lasts; it uses the threads of `pool` or of a new pool.

    If the block fails, calls that have not begun are cancelled, and `stop` ends the waits of calls
    in flight. At its end the block waits for the calls in flight, which may take seconds, unless
    the user interrupted it.
    """
    scheduler = Scheduler(most, pool, distance)
    try:
        yield scheduler
    except BaseException as error:
        stop()
        is_own_failure = isinstance(error, (Exception, GeneratorExit))
        scheduler.shutdown(wait=is_own_failure, cancel_futures=True)
        raise
    scheduler.shutdown()


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
    if all(future.done() for future in futures):  # as_completed takes 17 us or more
        yield from futures
        return
    pending = set(futures)
    while pending:
        with suppress(TimeoutError):
            for future in as_completed(pending, _LISTENS):
                pending.remove(future)
                yield future


def results(futures: Sequence[Future[T]], idle: Callable[[], None] = do_nothing) -> tuple[T, ...]:
    """Return the results in order, or raise the first error as soon as a future has failed.

    Signals are handled and `idle` is called several times a second.
    """
    while not all(future.done() for future in futures):
        wait_for(futures, _LISTENS, FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()
        idle()
    return tuple(future.result() for future in futures)


def awaited(future: Future[T], idle: Callable[[], None] = do_nothing) -> T:
    """Return or raise the result of one future, as `results` does."""
    [result] = results([future], idle)
    return result
