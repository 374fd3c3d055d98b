"""The budget of requests, by a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.http import Turn
from auditor.downloader.retry import WINDOW, RateLimit
from auditor.downloader.waits import Wait
from auditor.sweep.workers.budget import Budget, RateWindow, opens, spared

FILE, API = "/o/n/resolve/main/config.json", "/api/models"


class Server:
    """Counts requests in fixed windows, as the Hub does; time passes where a client sleeps."""

    def __init__(self, quota, most=None, *, told=True, started=1.0):
        self.now = started
        self.quota, self.told, self.opened, self.spent = quota, told, 0.0, 0
        self.shown = []  # the waits that a progress bar would show, and None at the end of each
        self.refused = 0
        self.budget = Budget(most, clock=lambda: self.now)

    def rest(self, wait, step):
        self.shown.append(wait)
        self.now += step

    def rest_and_answer(self, _wait, step):
        self.now += step
        if self.now >= self.answered_at:
            self.answer()

    def take(self, path=FILE):
        """The seconds that a request waits until the budget admits it; it gets no answer here."""
        self.turn = self.budget.take(path, self.rest)
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
    server.now += pause
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
    waits = [server.ask(path) for path in (API, FILE, FILE, FILE)]
    assert waits[:3] == [0.0, 0.0, 0.0]
    assert waits[3] > 290


def test_a_mirror_without_a_rate_limit_header_is_not_waited_for():
    server = Server(10, told=False)
    assert [server.ask() for _ in range(50)] == [0.0] * 50


@pytest.mark.parametrize("path", [FILE, API])
def test_the_first_request_goes_alone_until_the_limits_are_known(path):
    server = Server(1000)
    assert server.take(path) == 0.0
    first = server.turn
    server.answer = lambda: server.budget.note(first, 200, {"ratelimit": "r=999;t=300"})
    server.rest, server.answered_at = server.rest_and_answer, server.now + 7.0
    assert 7.0 <= server.take(path) < 8.5
    assert [server.take(path) for _ in range(3)] == [0.0] * 3


@pytest.mark.parametrize("path", [FILE, API])
def test_nor_are_they_held_up_for_ever_where_it_has_none(path):
    server = Server(1000)
    waits = [server.take(path) for _ in range(3)]
    assert waits[0] == 0.0
    assert all(30.0 <= wait < 30.5 for wait in waits[1:])


def test_limits_of_another_kind_of_request_delay_nothing():
    server = Server(1000)
    server.take(FILE)
    server.budget.note(server.turn, 200, {"ratelimit": '"api";r=999;t=300'})
    assert [server.take(FILE) for _ in range(3)] == [0.0] * 3


def test_the_wait_is_shown_as_a_countdown_and_ends():
    server = Server(10)
    while not server.ask():
        assert not server.shown
    *waits, end = server.shown
    assert end is None
    seconds = [wait.seconds for wait in waits]
    assert WINDOW >= seconds[0] > 290
    assert seconds == sorted(seconds, reverse=True)
    assert {wait.why for wait in waits} == {"the budget of requests for files is spent"}


@pytest.mark.parametrize(
    "limit", ['"other";r=0;t=99', "rubbish", '"resolvers";r=;t=', '"resolvers";r=1']
)
def test_headers_that_say_nothing_do_no_harm(limit):
    server = Server(10)
    server.budget.note(Turn(FILE), 200, {"ratelimit": limit})
    assert server.take(FILE) == 0.0


def test_a_wait_that_ends_early_is_shown_no_longer():
    server = Server(100)
    server.ask()
    server.spent = 99
    server.ask()  # and is told that the window is spent

    def reopened(wait, step):
        server.shown.append(wait)
        server.now += step
        server.opened, server.spent = server.now, 0
        server.budget.note(Turn(API), 200, {"ratelimit": '"resolvers";r=100;t=300'})

    server.rest = reopened
    assert 0 < server.ask() <= 2
    assert server.shown[-1] is None


def test_a_window_of_five_seconds_without_a_policy_is_waited_for_then_one_request_is_sent():
    server = Server(100)
    server.take()
    server.budget.note(server.turn, 429, {"ratelimit": "r=0;t=5"})
    server.now = 1.0
    assert 5.0 <= server.take() <= 6.5
    assert server.turn.first == server.now


@pytest.mark.parametrize("reset", ["99999999999999999999", "9" * 200])
def test_a_window_without_an_end_is_tried_again_after_five_minutes(reset):
    server = Server(100)
    server.take()
    server.budget.note(server.turn, 429, {"ratelimit": f'"resolvers";r=0;t={reset}'})
    assert 300.0 <= server.take() <= 301.5


@pytest.mark.parametrize("path", [FILE, API])
def test_at_the_end_of_a_window_the_second_waits_for_the_answer_to_the_first(path):
    server = Server(20)
    while not server.ask(path):
        pass
    server.now += 2 * WINDOW
    server.take(path)
    first = server.turn
    assert first.first
    server.answer = lambda: server.budget.note(first, 200, {"ratelimit": "r=19;t=300"})
    server.rest = server.rest_and_answer
    server.answered_at = server.now + 7.0
    assert 7.0 <= server.take(path) < 8.5
    assert not server.turn.first


def test_one_refusal_without_headers_delays_nothing():
    server = Server(100)
    server.ask()
    server.take()
    server.budget.note(server.turn, 429, {})
    assert server.take() == 0.0


def test_a_wait_is_reported_with_its_reason():
    server = Server(10, most=1000)
    while not server.ask(API):
        pass
    assert server.shown[0].why == "the budget of requests to the Hub's API is spent"
    server = Server(1000, most=1)
    server.ask()
    asked = server.now
    server.ask()
    assert server.shown[0] == Wait(
        "the requests of --max-requests are spent", pytest.approx(WINDOW + 1.0 - asked)
    )


# --- rules of one window --------------------------------------------------------------------------


LIMITS = st.builds(
    RateLimit,
    st.just("api"),
    st.integers(0, 10**6),
    st.integers(0, WINDOW) | st.integers(0, 10**9),
    st.none() | st.integers(0, 10**6),
)
# What happens to a window: seconds pass, and then a request is let through, or an answer comes.
STEPS = st.lists(
    st.tuples(st.floats(0, 400), st.none() | LIMITS | st.just("untold")),
    max_size=20,
)


@given(STEPS)
def test_no_wait_is_longer_than_a_window_whatever_the_server_sent(steps):
    window, now = RateWindow(), 1.0
    for seconds, told in steps:
        now += seconds
        assert 0 <= window.wait(now) <= WINDOW + 1 + 1e-9
        if told is None:
            window = window.spent(now)
        elif told == "untold":
            window = window.after_no_limit(now, is_requested=True)
        else:
            window = window.after_limit(told, now)


@given(limit=LIMITS, early=st.floats(0, 1, exclude_max=True))
def test_a_window_that_is_spent_is_waited_for_to_its_end_and_not_beyond(limit, early):
    window = RateWindow().after_limit(limit._replace(remaining=0), 100.0)
    end = 100.0 + limit.ask_again + 1.0  # `t` is whole
    assert window.wait(100.0 + early * limit.ask_again) > 0
    assert window.wait(end) == 0
    assert window.is_over(end)


def spent_until(end):
    """A window of which nothing is left, told a second before its end."""
    return RateWindow().after_limit(RateLimit("api", 0, 1, None), end - 2.0)


def test_at_the_end_of_a_window_one_goes_first_and_the_others_when_it_has_succeeded():
    window = spent_until(100.0)
    assert window.wait(100.0) == 0
    window = window.spent(100.0)
    assert window.first == 100.0
    assert 0 < window.wait(100.0) < 1
    assert 0 < window.wait(120.0) < 1
    window = window.after_limit(RateLimit("api", 499, 300, 500), 120.0)
    assert window.wait(120.0) == 0
    assert window.spent(120.0).first == 0


def test_where_the_first_is_lost_another_one_goes_first():
    window = spent_until(100.0).spent(100.0)
    assert window.lost(99.0) == window  # it was not that one
    assert window.lost(0.0) == window  # it was one of many
    window = window.lost(100.0)
    assert window.wait(101.0) == 0
    assert window.spent(101.0).wait(101.5) > 0


def test_where_nothing_is_heard_of_the_first_another_one_goes_after_half_a_minute():
    window = spent_until(100.0).spent(100.0)
    assert window.wait(129.9) > 0
    assert window.wait(130.0) == 0


def test_a_server_without_new_limits_is_not_waited_for_again():
    window = spent_until(100.0)
    assert window.after_no_limit(50.0, is_requested=True) == window
    assert (
        window.spent(100.0).after_no_limit(101.0, is_requested=False).wait(101.0) > 0
    )  # of another kind
    window = window.spent(100.0).after_no_limit(101.0, is_requested=True)
    assert window.wait(101.0) == window.spent(101.0).wait(10**9) == 0
    told = window.after_limit(RateLimit("api", 0, 50, 500), 10**9)
    assert told.wait(10**9) == 51.0


OPENS = {
    "an answer": (200, None, True),
    "a file that is not there": (404, None, True),
    "a refusal": (429, None, False),
    "a refusal though something is left": (429, RateLimit("api", 9, 9, None), False),
    "a refusal that says until when": (429, RateLimit("api", 0, 9, None), True),
    "a fault of the server": (503, RateLimit("api", 9, 9, None), False),
}


@pytest.mark.parametrize(("status", "limit", "expected"), OPENS.values(), ids=OPENS)
def test_what_the_others_wait_for_is_an_answer_or_a_time(status, limit, expected):
    assert opens(status, limit) is expected


@given(limit=LIMITS, share=st.integers(1, 50))
def test_a_share_is_taken_of_what_is_left_and_of_the_quota(limit, share):
    window = RateWindow().after_limit(limit, 1.0, share)
    assert window.left == limit.remaining // share
    assert window.wait(1.0) == 0 or window.left <= spared(window.quota)
