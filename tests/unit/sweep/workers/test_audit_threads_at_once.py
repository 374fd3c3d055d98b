"""How many models are under way: a sweep that is simulated, and what limits it."""

from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.sweep.workers.audit_threads import LEAST, Concurrency

MOST = 160
DISTANCES = st.floats(0.0, 1.0)  # seconds of network for one model
PROCESSORS = st.floats(0.001, 0.05)  # seconds of processor for one model


def swept(distance, processor, rate=None, files=2, models=3000):
    """Models a second of the last half, by the rule; one processor, as many models under way."""
    rule, free, under_way, done = Concurrency(MOST), 0.0, [], []  # (when it is done, its start)
    budget = 0.0  # when the next two requests may go
    now = 0.0
    while len(done) < models:
        while len(under_way) < rule.models:
            start = max(now, budget)
            budget = start + files / rate if rate else 0.0
            free = max(free, start + distance) + processor  # fetched, and then examined in turn
            heappush(under_way, (free, start))
        now, start = heappop(under_way)
        done.append(now)
        rule.done(seconds=now - start, processor=processor, files=files, rate=rate)
    half = len(done) // 2
    return (len(done) - half) / (done[-1] - done[half - 1]), rule.models


@given(distance=DISTANCES, processor=PROCESSORS)
def test_the_processor_is_busy_whatever_the_distance(distance, processor):
    rate, models = swept(distance, processor)
    reachable = min(1 / processor, MOST / (distance + processor))
    assert rate >= 0.9 * reachable
    assert LEAST <= models <= MOST


@given(distance=DISTANCES, processor=PROCESSORS)
def test_no_more_are_under_way_than_that_takes(distance, processor):
    """By Little's law, and half as many again: some wait for the processor from the start."""
    _, models = swept(distance, processor)
    assert models <= max(LEAST, 1.5 * (distance + LEAST * processor) / processor + 1)


@given(distance=DISTANCES, rate=st.floats(5, 200))
def test_a_quota_is_used_up_and_no_more_are_under_way_than_it_needs(distance, rate):
    models, under_way = swept(distance, 0.001, rate=rate)
    assert models >= 0.9 * min(rate / 2, MOST / (distance + 0.001))
    assert under_way <= max(LEAST, 1.3 * rate / 2 * (distance + 0.005) + 1)


@pytest.mark.parametrize("most", [1, 2, 40])
def test_there_are_never_more_than_allowed(most):
    rule = Concurrency(most)
    assert rule.models <= most
    for _ in range(100):
        rule.done(seconds=10.0, processor=0.001, files=2, rate=None)
        assert rule.models <= most


def test_the_largest_plan_at_the_distance_of_the_hub_needs_seventy_five():
    """333 requests a second, two a model; three answers of 150 ms each, one of them storage's."""
    rule = Concurrency(MOST)
    for _ in range(200):
        rule.done(seconds=0.45, processor=0.001, files=2, rate=100_000 / 300)
    assert 75 <= rule.models <= 95
