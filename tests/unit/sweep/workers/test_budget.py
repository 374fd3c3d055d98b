"""The budget of requests, by a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.rate_limits import WINDOW
from auditor.downloader.request_budget import Turn
from auditor.downloader.waits import Wait
from auditor.sweep.workers.budget import Budget

FILE, API = "/o/n/resolve/main/config.json", "/api/models"


class Server:
    """Counts requests in fixed windows, as the Hub does; time passes where a client sleeps."""

    def __init__(self, quota, most=None, *, told=True, started=1.0):
        self.now = started
        self.quota, self.told, self.opened, self.spent = quota, told, 0.0, 0
        self.shown = []  # the wait that a progress bar would show
        self.refused = 0
        self.budget = Budget(most, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds):
        self.shown.append(self.budget.blocked())
        self.now += seconds

    def sleep_and_answer(self, seconds):
        self.now += seconds
        if self.now >= self.answered_at:
            self.answer()

    def take(self, path=FILE):
        """The seconds that a request waits until the budget admits it; it gets no answer here."""
        self.turn = self.budget.take(path)
        return self.turn.waited

    def ask(self, path=FILE):
        waited = self.take(path)
        turn = self.turn
        self.now += 0.01
        age = self.now - self.opened
        if age >= WINDOW:
            self.opened, self.spent, age = self.now - age % WINDOW, 0, age % WINDOW
        self.spent += 1
        self.refused += self.spent > self.quota
        kind = "resolvers" if "/resolve/" in path else "api"
        left, reset = max(0, self.quota - self.spent), max(1, round(WINDOW - age))
        limit = {
            "ratelimit": f'"{kind}";r={left};t={reset}',
            "ratelimit-policy": f'"fixed window";"{kind}";q={self.quota};w=300',
        }
        status = 200 if self.spent <= self.quota else 429
        self.budget.note(turn, status, limit if self.told else {})
        return waited


@pytest.mark.slow
@given(quota=st.integers(3, 200), count=st.integers(1, 500), started=st.floats(1, 1000))
def test_a_job_alone_never_runs_into_429(quota, count, started):
    server = Server(quota, started=started)
    for _ in range(count):
        server.ask()
    assert server.refused == 0


@given(quota=st.integers(10, 100), pause=st.floats(0, 700))
def test_nor_after_a_pause_of_any_length(quota, pause):
    server = Server(quota)
    for _ in range(quota // 2):
        server.ask()
    server.sleep(pause)
    for _ in range(2 * quota):
        server.ask()
    assert server.refused == 0


def test_a_twentieth_of_the_window_is_left_to_others():
    server = Server(100)
    assert [server.ask() for _ in range(95)].count(0.0) == 95
    assert server.ask() > 290


def test_what_others_took_of_the_window_is_seen():
    server = Server(100)
    server.ask()
    server.spent = 94
    server.ask()
    assert server.ask() > 290


def test_the_kinds_have_windows_of_their_own():
    server = Server(10)
    while not server.ask():
        pass
    assert server.take(API) == 0.0


def test_a_limit_of_ones_own_counts_requests_of_both_kinds():
    server = Server(1000, most=3)
    waits = [server.take(path) for path in (API, FILE, FILE, FILE)]
    assert waits[:3] == [0.0, 0.0, 0.25] or waits[:3] == [0.0, 0.0, 0.0]
    assert waits[3] > 290


def test_a_mirror_that_tells_nothing_is_not_waited_for():
    server = Server(10, told=False)
    assert [server.ask() for _ in range(50)] == [0.0] * 50


def test_until_the_hub_has_told_requests_go_one_by_one():
    server = Server(1000)
    waits = [server.take(FILE) for _ in range(3)]
    assert waits[0] == 0.0
    assert all(0.2 < wait < 0.3 for wait in waits[1:])


def test_the_wait_is_said_as_a_countdown_and_ends():
    server = Server(10)
    while not server.ask():
        assert server.budget.blocked() == 0.0
    assert WINDOW >= server.shown[0] > 290
    assert server.shown == sorted(server.shown, reverse=True)
    assert server.budget.blocked() == 0.0


@pytest.mark.parametrize(
    "limit", ['"other";r=0;t=99', "rubbish", '"resolvers";r=;t=', '"resolvers";r=1']
)
def test_headers_that_say_nothing_do_no_harm(limit):
    server = Server(10)
    server.budget.note(Turn(FILE), 200, {"ratelimit": limit})
    assert server.take(FILE) == 0.0


def test_a_wait_that_a_server_asks_for_is_shown_until_it_is_over():
    server = Server(100)
    server.budget.hold(20.0)
    server.budget.hold(5.0)
    server.now += 8.0
    assert server.budget.blocked() == 12.0
    server.now += 12.0
    assert server.budget.blocked() == 0.0


def test_a_wait_that_ends_early_is_shown_no_longer():
    server = Server(100)
    server.ask()
    server.spent = 99
    server.ask()  # and is told that the window is spent

    def reopened(seconds):
        server.now += seconds
        server.opened, server.spent = server.now, 0
        server.ask(API)  # of the other kind, which may go; the Hub tells of a new window
        server.budget.note(Turn(API), 200, {"ratelimit": '"resolvers";r=100;t=300'})

    server.sleep = reopened
    server.budget._sleep = reopened  # noqa: SLF001 - the clock is the test's own
    server.ask()
    assert server.budget.blocked() == 0.0


def test_a_window_of_five_seconds_without_a_policy_is_waited_for_and_then_one_asks():
    server = Server(100)
    turn = server.budget.take(FILE)
    server.budget.note(turn, 429, {"ratelimit": "r=0;t=5"})
    server.now = 1.0
    assert 5.0 <= server.take() <= 6.5
    assert server.turn.first == server.now


@pytest.mark.parametrize("reset", ["99999999999999999999", "9" * 200])
def test_a_window_without_end_is_asked_about_after_five_minutes(reset):
    server = Server(100)
    server.budget.note(server.budget.take(FILE), 429, {"ratelimit": f'"resolvers";r=0;t={reset}'})
    assert 300.0 <= server.take() <= 301.5


@pytest.mark.parametrize("path", [FILE, API])
def test_at_the_end_of_a_window_the_second_waits_for_the_answer_to_the_first(path):
    server = Server(20)
    while not server.ask(path):
        pass
    server.now += 2 * WINDOW
    first = server.budget.take(path)
    assert first.first
    server.answer = lambda: server.budget.note(first, 200, {"ratelimit": "r=19;t=300"})
    server.budget._sleep = server.sleep_and_answer  # noqa: SLF001 - the clock is the test's own
    server.answered_at = server.now + 7.0
    assert 7.0 <= server.take(path) < 8.5
    assert not server.turn.first


def test_one_refusal_without_headers_holds_nobody_back():
    server = Server(100)
    server.ask()
    server.budget.note(server.budget.take(FILE), 429, {})
    assert server.take() == 0.0


def test_what_is_waited_for_is_said_as_it_is():
    server = Server(10, most=1000)
    while not server.ask(API):
        pass
    server.budget.hold(20.0)
    assert server.budget.waiting() == Wait("a server asks for patience", 20.0)
    waits = []
    budget = Budget(1, clock=lambda: server.now)
    budget.take(FILE)
    with pytest.raises(StopIteration):
        budget.take(FILE, lambda wait, _step: waits.append(wait) or next(iter(())))
    assert waits == [Wait("the requests of --max-requests are spent", 300.0)]


def test_a_window_that_is_not_spent_limits_no_rate_and_one_that_is_its_quota_does():
    server = Server(3000)
    server.ask()
    assert server.budget.rate is None
    server.spent = 2999
    server.ask()  # and is told that nothing is left
    assert server.ask() > 0
    assert server.budget.rate == (3000 - 50) / WINDOW


def test_the_api_limits_no_rate_of_files():
    server = Server(100)
    while not server.ask(API):
        pass
    assert server.budget.rate is None


@pytest.mark.parametrize(("share", "rate"), [(1, 30), (3, 10)])
def test_a_limit_of_ones_own_is_a_rate_too_of_which_each_has_its_share(share, rate):
    server = Server(10**6, most=30)
    server.budget.divide(share)
    while not server.ask():
        pass
    assert server.budget.rate == rate / WINDOW
