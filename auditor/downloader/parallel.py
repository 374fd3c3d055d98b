"""Thread pools for concurrent reads, shared by several checkpoints or one for each."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, as_completed
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

AT_HAND = 4  # reads at a time of what answers at once, as a disk does
_NEAR = 0.005  # seconds; the Hub is farther
_SLOW = 0.05  # seconds for one read; a near disk or server needs a few thousandths

# Seconds after which a wait begins anew. Python handles a signal in the main thread, between two of
# its steps: one that comes just before a wait begins does not end it.
_LISTENS = 1.0


@contextmanager
def threads(
    count: int, stop: Callable[[], None], share_of: Executor | None = None
) -> Iterator[Executor]:
    """Provide `count` threads, or a share of a pool, for as long as the block lasts.

    If the block fails, calls that have not begun are cancelled, and `stop` ends the waits of those
    that have. These are joined unless the user interrupted the block: a read may take seconds.
    """
    pool = _Share(share_of) if share_of else ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException as error:
        stop()
        by_itself = isinstance(error, (Exception, GeneratorExit))
        pool.shutdown(wait=by_itself, cancel_futures=True)
        raise
    pool.shutdown()


class CallingThread(Executor):
    """Runs each call at once in the thread that submits it: small work needs no other thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = Future[T]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised again by future.result()
            future.set_exception(error)
        return future


class _Share(Executor):
    """One checkpoint's share of a pool; its shutdown leaves the pool running."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._asked: list[Future[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = self._pool.submit(fn, *args, **kwargs)
        self._asked.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as an Executor has it
        if cancel_futures:
            for future in self._asked:
                future.cancel()
        if wait:
            for _ in as_they_end(self._asked):
                pass


def apart_from_signals(work: Callable[[], T]) -> T:
    """Run `work` outside the main thread; return or raise what it returns or raises.

    Python handles signals only in the main thread, and not while that waits in compiled code.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future = Future[T]()
    threading.Thread(target=run_into, args=(future, work), name="request").start()
    return awaited(future)


def run_into(future: Future[T], work: Callable[[], T]) -> None:
    """Give a future what `work` returns or raises, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        future.set_exception(error)


def as_they_end(futures: Sequence[Future[T]]) -> Iterator[Future[T]]:
    """Yield futures like as_completed, but let the main thread handle signals every second."""
    if all(future.done() for future in futures):  # then as_completed would take 17 us and more
        yield from futures
        return
    left = set(futures)
    while left:
        with suppress(TimeoutError):
            for future in as_completed(left, _LISTENS):
                left.remove(future)
                yield future


def have_ended(futures: Sequence[Future[Any]]) -> bool:
    """Whether all futures end within a second; raise the error of the first one that failed."""
    if not all(future.done() for future in futures):
        wait_for(futures, _LISTENS, FIRST_EXCEPTION)
    ended = [future.result() for future in futures if future.done()]
    return len(ended) == len(futures)


def awaited(future: Future[T]) -> T:
    """Return or raise the result of a future; signals are handled within a second."""
    while not have_ended([future]):
        pass
    return future.result()


class ByDistance(Executor):
    """An executor with few threads for a near source and many threads for a distant one.

    `distance` is the time of the quickest answer so far, in seconds. Many threads cost memory,
    because each has its own arena, and time, because only one at a time runs Python: to read the
    163 shards of DeepSeek-V3 from a near source, 64 threads take 50 MB and 10 % more time than 4.

    A near mirror may fetch files from far away, or send them slowly: after AT_HAND slow reads in a
    row, the many threads do the remaining reads.
    """

    def __init__(self, near: Executor, far: Executor, distance: Callable[[], float]) -> None:
        self._near, self._far, self._distance = near, far, distance
        self._waiting = deque[Callable[[], None]]()
        self._slow = 0  # reads in a row

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._slow >= AT_HAND or self._distance() >= _NEAR:
            return self._far.submit(fn, *args, **kwargs)
        future = Future[T]()
        self._waiting.append(partial(run_into, future, partial(fn, *args, **kwargs)))
        self._near.submit(self._first_of_the_waiting)
        return future

    def _first_of_the_waiting(self) -> None:
        if work := self._taken():
            since = time.monotonic()
            work()
            self._slow = self._slow + 1 if time.monotonic() - since > _SLOW else 0
        while self._slow >= AT_HAND and (work := self._taken()):
            self._far.submit(work)

    def _taken(self) -> Callable[[], None] | None:
        """Remove and return the first waiting call; None if no call is waiting."""
        with suppress(IndexError):
            return self._waiting.popleft()
        return None
