"""What a cluster's workers tell of their waits, and what the client says, by clocks of our own."""

from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.sweep.workers.cluster import ClusterWaits, News


class Clock:
    """Shows so many seconds."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


class Cluster:
    """Workers whose budgets let nobody through until some time, and a client with another clock."""

    def __init__(self, ahead, workers):
        self.here, self.there = Clock(ahead), Clock()
        self.until = [0.0] * workers
        self.news = [News(self.there) for _ in range(workers)]
        self.waits = ClusterWaits(self.here)
        self.told = []  # (worker, when)

    def passes(self, seconds):
        self.here.now += seconds
        self.there.now += seconds

    def wait(self, worker):
        return max(0.0, self.until[worker] - self.there.now)

    def look(self, worker):
        if self.news[worker].is_due(self.wait(worker)):
            self.told.append((worker, self.there.now))
            self.waits.told(str(worker), self.wait(worker))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # a worker
        st.none() | st.floats(0, 400),  # its wait from now on; None: as before
        st.floats(0, 20),  # seconds until the next step
    ),
    max_size=40,
)


@given(ahead=st.floats(0, 1e6), steps=STEPS)
def test_the_client_says_the_shortest_of_all_waits_to_the_second(ahead, steps):
    cluster = Cluster(ahead, workers=3)
    for worker, wait, seconds in steps:
        if wait is not None:
            cluster.until[worker] = cluster.there.now + wait
        cluster.passes(seconds)
        cluster.passes(1.01)  # so that all may tell again
        for each in range(3):
            cluster.look(each)
        said = cluster.waits.shortest(("0", "1", "2"))
        assert said == pytest.approx(min(cluster.wait(each) for each in range(3)), abs=1.001)


@given(steps=STEPS)
def test_a_worker_tells_at_most_once_a_second(steps):
    cluster = Cluster(0.0, workers=1)
    for _, wait, seconds in steps:
        if wait is not None:
            cluster.until[0] = cluster.there.now + wait
        cluster.passes(seconds / 20)
        cluster.look(0)
    told = [when for _, when in cluster.told]
    assert all(later - sooner >= 1 for sooner, later in pairwise(told))


@given(wait=st.floats(1, 400), looks=st.lists(st.floats(0, 5), max_size=50))
def test_a_wait_that_goes_on_as_it_was_told_is_told_once(wait, looks):
    cluster = Cluster(0.0, workers=1)
    cluster.until[0] = wait
    cluster.look(0)
    for seconds in looks:
        cluster.passes(seconds)
        cluster.look(0)
    assert cluster.told == [(0, 0.0)]


# What a worker sees at which time, and whether it tells: (time, wait, told).
Look = tuple[float, float, Literal["told", ""]]
LOOKS: dict[str, tuple[Look, ...]] = {
    "nobody waits": ((0, 0, ""), (5, 0, "")),
    "a moment between two requests": ((0, 0.25, ""), (0.5, 0.1, "")),
    "a wait and its end": ((0, 300, "told"), (150, 150, ""), (300, 0, ""), (301, 0, "")),
    "a wait that ends early": ((0, 300, "told"), (10, 0, "told"), (20, 0, "")),
    "a wait that grows": ((0, 100, "told"), (50, 52, "told"), (60, 42, "")),
    "the next window": ((0, 3, "told"), (3, 0, ""), (9, 290, "told")),
    "two changes within a second": ((0, 9, "told"), (0.5, 0, ""), (1, 0, "told")),
}


@pytest.mark.parametrize("looks", LOOKS.values(), ids=LOOKS)
def test_a_worker_tells_what_changes(looks):
    clock = Clock()
    news = News(clock)
    for clock.now, wait, told in looks:
        assert news.is_due(wait) == bool(told)


WAITING = {
    "nobody has work": ({"a": 9.0}, (), 0.0),
    "one waits": ({"a": 9.0}, ("a",), 9.0),
    "all wait": ({"a": 9.0, "b": 7.0}, ("a", "b"), 7.0),
    "one that works never waited": ({"a": 9.0}, ("a", "b"), 0.0),
    "one that works waits no more": ({"a": 9.0, "b": 0.0}, ("a", "b"), 0.0),
    "one without work does not count": ({"a": 9.0, "b": 7.0}, ("a",), 9.0),
}


@pytest.mark.parametrize(("told", "working", "said"), WAITING.values(), ids=WAITING)
def test_the_shortest_wait_is_said_where_every_worker_with_work_waits(told, working, said):
    waits = ClusterWaits(Clock(5.0))
    for worker, seconds in told.items():
        waits.told(worker, seconds)
    assert waits.shortest(working) == said


def test_a_wait_is_counted_down_by_the_clients_clock_and_ends():
    clock = Clock(1000.0)
    waits = ClusterWaits(clock)
    waits.told("a", 3.0)
    said = []
    for clock.now in (1000.0, 1001.0, 1003.0, 1004.0):
        said.append(waits.shortest(["a"]))
    assert said == [3.0, 2.0, 0.0, 0.0]


def test_of_a_worker_that_is_gone_another_with_its_address_inherits_nothing():
    waits = ClusterWaits(Clock())
    waits.told("a", 9.0)
    waits.forget({"a", "b"})
    assert waits.shortest(["a"]) == 0.0
