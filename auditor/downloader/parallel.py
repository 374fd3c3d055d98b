"""Threads that read side by side: a pool that several checkpoints share, or one for each."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

AT_HAND = 4  # reads at a time of what answers at once, as a disk does
_NEAR = 0.005  # seconds; the Hub is farther
_SLOW = 0.05  # seconds for one read; a near disk or server needs a few thousandths


class Stops(Protocol):
    """What can end its waits."""

    def stop(self) -> None: ...


@contextmanager
def threads(count: int, stop: Callable[[], None]) -> Iterator[ThreadPoolExecutor]:
    """`count` threads, for as long as the block lasts; `stop` ends the waits of those at work.

    Where the block fails they are waited for, but not where the user interrupts it: they may sit in
    a read for seconds yet.
    """
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException as error:
        stop()
        pool.shutdown(wait=_is_ours(error), cancel_futures=True)
        raise
    pool.shutdown()


def _is_ours(error: BaseException) -> bool:
    """Whether a block has failed by itself; it was not the user who ended it."""
    return isinstance(error, (Exception, GeneratorExit))


def apart_from_signals(work: Callable[[], T]) -> T:
    """What `work` returns or raises; it is done in another thread than the main one.

    Python hears a signal in the main thread alone, and not while that waits in compiled code.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future = Future[T]()
    threading.Thread(target=settle, args=(future, work), name="request").start()
    return future.result()


def settle(future: Future[T], work: Callable[[], T]) -> None:
    """Give a future what `work` returns or raises, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        future.set_exception(error)


def as_they_end(futures: Sequence[Future[T]]) -> Iterable[Future[T]]:
    """as_completed, which takes 17 us even where all have ended: of a pool that works at once."""
    return futures if all(future.done() for future in futures) else as_completed(futures)


class ByDistance(Executor):
    """Few threads for what answers at once, and many where they have to hide a distance.

    `distance` is the time of the quickest answer so far, in seconds. Many threads cost memory, for
    each has an arena of its own, and time, for one at a time runs Python: of the 163 shards of
    DeepSeek-V3 behind no distance, 64 take 50 MB and a tenth of the time more than four.

    A mirror that is near may fetch files from afar, or send them slowly: after some slow reads in a
    row, the many threads do what is left.
    """

    def __init__(self, near: Executor, far: Executor, distance: Callable[[], float]) -> None:
        self._near, self._far, self._distance = near, far, distance
        self._waiting = deque[tuple[Future[Any], Callable[[], Any]]]()
        self._slow = 0  # reads in a row

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._is_far():
            return self._far.submit(fn, *args, **kwargs)
        future = Future[T]()
        self._waiting.append((future, partial(fn, *args, **kwargs)))
        self._near.submit(self._first_of_the_waiting)
        return future

    def _is_far(self) -> bool:
        return self._slow >= AT_HAND or self._distance() >= _NEAR

    def _first_of_the_waiting(self) -> None:
        for future, work in self._taken(1):
            since = time.monotonic()
            settle(future, work)
            self._slow = self._slow + 1 if time.monotonic() - since > _SLOW else 0
        if self._slow >= AT_HAND:
            for future, work in self._taken(len(self._waiting)):
                self._far.submit(settle, future, work)

    def _taken(self, count: int) -> Iterator[tuple[Future[Any], Callable[[], Any]]]:
        """As many of the waiting as there are yet, for other threads take of them, too."""
        with suppress(IndexError):
            for _ in range(count):
                yield self._waiting.popleft()


class _Part(Executor):
    """One checkpoint's share of a pool: it can give up what it asked for, and nothing else."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._asked: list[Future[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = self._pool.submit(fn, *args, **kwargs)
        self._asked.append(future)
        return future

    def give_up(self) -> None:
        """Cancel what has not begun."""
        for future in self._asked:
            future.cancel()

    def wait(self) -> None:
        wait(self._asked)


@contextmanager
def share_of_pool(pool: Executor, reader: Stops) -> Iterator[Executor]:
    part = _Part(pool)
    try:
        yield part
    except BaseException as error:
        reader.stop()
        part.give_up()
        if _is_ours(error):
            part.wait()
        raise
