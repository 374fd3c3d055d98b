"""Few threads read of a near server, many of a far one; what waits for them hears signals."""

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.running import PATIENCE

from auditor.downloader import parallel
from auditor.downloader.parallel import (
    AT_HAND,
    ByDistance,
    apart_from_signals,
    as_they_end,
    awaited,
)

QUICK, SLOW = 0.001, 0.1  # seconds
NEAR, FAR = 0.0001, 0.1


class Held(Executor):
    """Work that a test does when it says so, one at a time."""

    def __init__(self) -> None:
        self.held: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.held.append(partial(fn, *args, **kwargs))
        return Future()

    def work(self, count: int) -> None:
        for _ in range(count):
            self.held.pop(0)()


class Pools:
    """A near and a far pool, and a clock that goes on while something is read."""

    def __init__(self, distance: float) -> None:
        self.near, self.far, self.now = Held(), Held(), 0.0
        self.by_distance = ByDistance(self.near, self.far, lambda: distance)

    def read(self, *lengths: float) -> list[Future[float]]:
        return [self.by_distance.submit(self._one, seconds) for seconds in lengths]

    def _one(self, seconds: float) -> float:
        self.now += seconds
        return seconds


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Pools:
    pools = Pools(NEAR)
    monkeypatch.setattr(parallel.time, "monotonic", lambda: pools.now)
    return pools


def test_many_threads_read_from_afar_and_few_from_nearby(pools: Pools) -> None:
    far = Pools(FAR)
    for one in (pools, far):
        one.read(*[QUICK] * 20)
    assert [len(pools.near.held), len(pools.far.held)] == [20, 0]
    assert [len(far.near.held), len(far.far.held)] == [0, 20]


def test_the_many_threads_do_what_is_left_after_some_slow_reads_in_a_row(pools: Pools) -> None:
    asked = pools.read(*[SLOW] * 20)
    pools.near.work(AT_HAND - 1)
    assert not pools.far.held
    pools.near.work(1)
    assert len(pools.far.held) == 20 - AT_HAND
    pools.near.work(3)  # the few go on beside them
    pools.far.work(len(pools.far.held))
    pools.near.work(len(pools.near.held))
    assert [future.result(timeout=0) for future in asked] == [SLOW] * 20
    pools.read(SLOW)
    assert len(pools.far.held) == 1


def test_single_slow_reads_change_nothing(pools: Pools) -> None:
    asked = pools.read(*[*[SLOW] * (AT_HAND - 1), QUICK] * 5)
    pools.near.work(len(asked))
    assert not pools.far.held
    assert all(future.done() for future in asked)


def test_an_abandoned_read_is_not_done_and_a_failed_one_raises(pools: Pools) -> None:
    given_up, kept = pools.read(QUICK, QUICK)
    failing = pools.by_distance.submit(int, "x")
    assert given_up.cancel()
    pools.near.work(3)
    assert pools.now == QUICK
    assert kept.result(timeout=0) == QUICK
    assert isinstance(failing.exception(timeout=0), ValueError)


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
    "apart": lambda future: apart_from_signals(future.result),
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
