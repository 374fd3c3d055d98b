"""The workers of a cluster share one budget: together they spend what the Hub allows."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.http import Turn
from auditor.sweep.workers.budget import Budget, spared

pytestmark = pytest.mark.slow

FILE = "/o/n/resolve/main/config.json"


def stop(_wait, _step):
    message = "waits"
    raise TimeoutError(message)


class Server:
    """Counts the requests of one window, and tells each worker what is left for all."""

    def __init__(self, quota, workers):
        self.quota, self.spent = quota, 0
        self.budgets = [self._share(workers) for _ in range(workers)]

    def _share(self, workers):
        budget = Budget(clock=lambda: 1.0)
        budget.share = workers
        budget.note(budget.take(FILE, stop), 200, self._told())
        return budget

    def _told(self):
        return {
            "ratelimit": f'"resolvers";r={max(0, self.quota - self.spent)};t=100',
            "ratelimit-policy": f'"fixed window";"resolvers";q={self.quota};w=300',
        }

    def ask(self, worker):
        """Let a worker ask, unless its budget has it wait."""
        with suppress(TimeoutError):
            turn = self.budgets[worker].take(FILE, stop)
            self.spent += 1
            self.budgets[worker].note(turn, 200, self._told())


SIZES = {"quota": st.integers(20, 1000), "workers": st.integers(1, 12)}


@given(**SIZES, asks=st.lists(st.integers(0, 11), max_size=2000))
def test_shares_of_a_budget_add_up_to_no_more_than_the_budget(quota, workers, asks):
    server = Server(quota, workers)
    for worker in asks:
        server.ask(worker % workers)
    for worker in [*range(workers)] * (quota // workers):
        server.ask(worker)
    assert server.spent <= quota


class Distance(Server):
    """The same from far away: requests are under way, and answers come in any order."""

    def __init__(self, quota, workers, draw):
        self.now, self.draw = 1.0, draw
        self.under_way = []  # (worker, what the Hub says, when it arrives, its turn)
        super().__init__(quota, workers)

    def _share(self, workers):
        budget = Budget(clock=lambda: self.now)
        budget.share = workers
        budget.note(budget.take(FILE, stop), 200, self._told())
        return budget

    def send(self, worker):
        with suppress(TimeoutError):
            turn = self.budgets[worker].take(FILE, stop)
            self.spent += 1
            arrives = self.now + self.draw.uniform(0.05, 0.3)
            self.under_way.append((worker, self._told(), arrives, turn))

    def pass_time(self, seconds):
        self.now += seconds
        arrived = [one for one in self.under_way if one[2] <= self.now]
        self.draw.shuffle(arrived)
        for one in arrived:
            self.under_way.remove(one)
            self.budgets[one[0]].note(one[3], 200, one[1])


@given(workers=st.integers(2, 8), at_once=st.sampled_from([4, 8, 16]), seed=st.integers(0))
def test_nor_are_they_with_requests_under_way_and_workers_that_were_idle(workers, at_once, seed):
    """Of a quota with 25 requests for each under way: Team's has as many for 50 workers of 16."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    server = Distance(25 * at_once * workers, workers, draw)
    while server.now < 30.0:  # before the window ends
        busy = draw.sample(range(workers), draw.randint(1, workers))
        for _ in range(draw.randint(1, 60)):
            for worker in busy:
                there = sum(one[0] == worker for one in server.under_way)
                for _ in range(at_once - there):
                    server.send(worker)
            server.pass_time(draw.uniform(0.01, 0.1))
    assert 0.5 * server.quota < server.spent <= server.quota


@given(**SIZES)
def test_what_idle_workers_leave_is_not_lost(quota, workers):
    server = Server(quota, workers)
    for _ in range(quota):
        server.ask(0)
    assert server.spent >= quota - workers * (1 + spared(quota // workers)) - workers


def test_a_bound_of_our_own_is_divided_evenly():
    bounded = Budget(100, clock=lambda: 1.0)
    bounded.note(Turn(FILE), 200, {})
    bounded.share = 4
    for _ in range(25):
        bounded.take("/api/models", stop)
    with pytest.raises(TimeoutError, match="waits"):
        bounded.take("/api/models", stop)
