"""Which threads read: few of a near server, many of a far one and of one that turns out slow."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import pytest

from auditor.downloader import parallel
from auditor.downloader.parallel import AT_HAND, ByDistance

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


def test_a_read_that_was_given_up_is_not_done_and_one_that_fails_says_so(pools: Pools) -> None:
    given_up, kept = pools.read(QUICK, QUICK)
    failing = pools.by_distance.submit(int, "x")
    assert given_up.cancel()
    pools.near.work(3)
    assert pools.now == QUICK
    assert kept.result(timeout=0) == QUICK
    assert isinstance(failing.exception(timeout=0), ValueError)
