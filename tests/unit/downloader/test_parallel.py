"""The scheduler runs calls in order; waits for its calls handle signals."""

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.running import PATIENCE

from auditor.downloader import parallel
from auditor.downloader.parallel import (
    Scheduler,
    as_they_end,
    awaited,
    outside_main_thread,
    results,
    threads,
)


@given(st.integers(0, 5), st.integers(1, 12))
def test_calls_are_run_once_in_their_order_and_not_more_than_the_bound_at_a_time(
    most: int, count: int
) -> None:
    lock, begun, running, highest = threading.Lock(), list[int](), [0], [0]

    def call(number: int) -> int:
        with lock:
            begun.append(number)
            running[0] += 1
            highest[0] = max(highest[0], running[0])
        with lock:
            running[0] -= 1
        return number

    before = threading.active_count()
    with threads(most, bool) as scheduler:
        futures = [scheduler.submit(call, number) for number in range(count)]
        assert results(futures) == tuple(range(count))
    assert begun == list(range(count)) or most > 1
    assert sorted(begun) == list(range(count))
    assert highest[0] <= max(1, most)
    assert threading.active_count() == before


def test_a_failure_cancels_what_has_not_begun_and_ends_what_has() -> None:
    over, begun = threading.Event(), threading.Event()
    reads = list[Future[None]]()

    def wait_for_the_end() -> None:
        begun.set()
        assert over.wait(PATIENCE)

    def fail() -> None:
        with threads(1, over.set) as scheduler:
            reads.extend(scheduler.submit(wait_for_the_end) for _ in range(2))
            assert begun.wait(PATIENCE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert reads[0].result(timeout=0) is None
    assert reads[1].cancelled()


def test_the_calls_end_if_the_owner_of_the_pool_shuts_it_down() -> None:
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        scheduler = Scheduler(pool)
        first, *others = [scheduler.submit(over.wait, PATIENCE) for _ in range(3)]
        pool.shutdown(wait=False, cancel_futures=True)
        over.set()
        assert first.result(timeout=PATIENCE)
        scheduler.wait()
    assert all(other.done() for other in others)


def test_an_error_is_raised_by_the_thread_that_waits() -> None:
    for most in (0, 2):
        with threads(most, bool) as scheduler:
            failed = scheduler.submit(int, "x")
            with pytest.raises(ValueError, match="invalid literal"):
                awaited(failed)


# --- waits ----------------------------------------------------------------------------------------


class Heard(BaseException):
    """The handler of a signal has run."""


def hear(*_: object) -> None:
    raise Heard


@contextmanager
def signalled(unending: Future[None]) -> Iterator[None]:
    """The main thread has a signal to handle, which wakes it from no wait.

    That is how one leaves it that comes just before a wait begins. If nothing else ends the wait,
    the future ends after all.
    """
    before = signal.signal(signal.SIGUSR1, hear)
    over = threading.Event()

    def ring() -> None:
        time.sleep(0.1)  # until the wait has begun; if it has not, the signal is handled before it
        _thread.interrupt_main(signal.SIGUSR1)
        over.wait(PATIENCE)
        unending.set_result(None)

    ringing = threading.Thread(target=ring)
    ringing.start()
    try:
        yield
    finally:
        over.set()
        ringing.join()
        signal.signal(signal.SIGUSR1, before)


def ended() -> Future[None]:
    future = Future[None]()
    future.set_result(None)
    return future


WAITS: dict[str, Callable[[Future[None]], object]] = {
    "for one": awaited,
    "for one of several": lambda future: list(as_they_end([ended(), future])),
    "apart": lambda future: outside_main_thread(future.result),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_signal_that_comes_just_before_a_wait_is_handled(
    wait: Callable[[Future[None]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_LISTENS", 0.01)
    unending = Future[None]()
    with signalled(unending):
        with pytest.raises(Heard):
            wait(unending)
        assert not unending.done()


@given(st.integers(0, 5), st.integers(0, 5))
def test_each_future_comes_once_and_none_before_its_end(done: int, late: int) -> None:
    futures = [Future[None]() for _ in range(late)]
    waited_for = [ended() for _ in range(done)] + futures

    def end() -> None:
        for future in futures:
            future.set_result(None)

    ending = threading.Thread(target=end)
    ending.start()
    found = [(future, future.done()) for future in as_they_end(waited_for)]
    ending.join()
    assert [is_done for _, is_done in found] == [True] * len(waited_for)
    assert {future for future, _ in found} == set(waited_for)
