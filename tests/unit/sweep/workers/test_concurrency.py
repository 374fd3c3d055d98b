"""How many models are under way: a sweep that is simulated, and what limits it."""

from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.sweep.workers.audit_threads import LEAST, Concurrency

MOST, MODELS, FILES = 160, 3000, 2  # under way, of a sweep, of a model
DISTANCES = st.floats(0.0, 1.0)  # seconds of network for one model
PROCESSORS = st.floats(0.001, 0.05)  # seconds of processor for one model
BUNCHES = st.sampled_from((1, 2, 30))  # models that are done at once: threads take turns


class Measured(Concurrency):
    """The rule, by clocks of the test's own."""

    def __init__(self, most=MOST):
        self.now = self.spent = 0.0
        super().__init__(most, lambda: self.now, lambda: self.spent)

    def done_at(self, now, spent, seconds, *, waited=False):
        self.now, self.spent = now, spent
        self.done(seconds, waited=waited)


def swept(distance, processor, rate=None, bunch=1, link=0.0):
    """Models a second of the last half, by the rule, and how many it has under way at the end.

    One processor examines in turn what is fetched; `bunch` models that are next to each other are
    done together, as threads are that share a processor. One model after another takes the `link`
    for so many seconds.
    """
    rule, free, done = Measured(), 0.0, []
    under_way = []  # (when it is done, its start, whether it waited for the budget)
    budget = linked = 0.0  # when the next two requests may go, and when the link is free
    now, spent = 0.0, 0.0
    while len(done) < MODELS:
        while len(under_way) < rule.models:
            start = max(now, budget)
            budget = start + FILES / rate if rate else 0.0
            linked = max(linked, start) + link
            free = max(free, linked + distance) + processor  # fetched, and then examined in turn
            heappush(under_way, (free, start, start > now))
        together = [heappop(under_way) for _ in range(min(bunch, len(under_way)))]
        now = together[-1][0]
        spent += processor * len(together)
        for _, start, waited in together:
            done.append(now)
            rule.done_at(now, spent, now - start, waited=waited)
    half = len(done) // 2
    return (len(done) - half) / (done[-1] - done[half - 1]), rule.models


@given(distance=DISTANCES, processor=PROCESSORS, bunch=BUNCHES)
def test_the_processor_is_busy_whatever_the_distance(distance, processor, bunch):
    rate, models = swept(distance, processor, bunch=bunch)
    reachable = min(1 / processor, MOST / (distance + bunch * processor))
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


@given(distance=DISTANCES, link=st.floats(0.01, 0.1))
def test_models_that_wait_for_each_other_are_not_made_more_and_more(distance, link):
    """The link is full, and the processor idles: more under way would only take longer."""
    rate, models = swept(distance, 0.5 * link, link=link)
    few = distance + LEAST * 1.5 * link  # seconds of a model while there are few
    assert rate >= 0.9 * min(1 / link, MOST / (distance + link))
    assert models <= 1.25 * 4 * few / (0.5 * link) + 1


@pytest.mark.parametrize("most", [1, 2, 40])
def test_there_are_never_more_than_allowed(most):
    rule = Measured(most)
    assert rule.models <= most
    for number in range(100):
        rule.done_at(number, 0.001 * number, 10.0)
        assert rule.models <= most


def test_the_largest_plan_at_the_distance_of_the_hub_needs_fifty():
    """333 requests a second, two a model; two answers of 150 ms, the second of them storage's."""
    rule, pace = Measured(), 100_000 / 300 / FILES
    for number in range(1, 1001):
        rule.done_at(number / pace, 0.001 * number, 0.3, waited=True)
    assert 50 <= rule.models <= 63


def test_a_network_that_becomes_slower_has_more_under_way_and_a_busy_processor_has_not():
    rule = Measured()
    for number in range(1, 201):
        rule.done_at(number / 50, 0.01 * number, 0.1)
    before = rule.models
    for number in range(201, 401):  # twice the time, and the processor idles no more than before
        rule.done_at(number / 50, 0.01 * number, 0.2)
    assert rule.models == pytest.approx(2 * before, abs=2)
    for number in range(401, 601):  # four times the time, and the processor does nothing else
        rule.done_at(8 + (number - 400) / 100, 0.01 * number, 0.4)
    assert 1.5 * before < rule.models <= 2 * before


def test_models_without_requests_show_no_network_figures():
    """A stretch of repositories without weights, or of what is stored, before those to fetch."""
    rule = Measured()
    for number in range(1, 1001):
        rule.done_at(number / 1000, 0.0005 * number, None)
    assert rule.models == LEAST
    for number in range(1, 1001):
        rule.done_at(1 + number / 100, 0.5 + 0.005 * number, 0.3)
    assert rule.models == pytest.approx(200 * 0.3 * 1.25, abs=2)


def test_where_few_ask_the_network_there_are_as_many_as_those_need():
    rule = Measured()
    for number in range(1, 1001):
        rule.done_at(number / 100, 0.005 * number, None if number % 10 else 0.3)
    assert rule.models == pytest.approx(20 * 0.3 * 1.25, abs=2)
