"""The limits of requests, by a clock of the test's own: rate limits, and the budget of a model."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.fetching import ignore_message
from auditor.downloader.retry import WINDOW
from auditor.downloader.waits import ProgressLines
from auditor.errors import SourceError
from auditor.sweep import rate_limits
from auditor.sweep.rate_limits import Bounds, Budget, RateLimiter

FILE, API = "/o/n/resolve/main/config.json", "/api/models"


class Server:
    """Counts requests in fixed windows, as the Hub does; time passes where a client sleeps."""

    def __init__(self, quota, most=None, *, told=True, started=1.0):
        self.now = started
        self.quota, self.told, self.opened, self.spent = quota, told, 0.0, 0
        self.shown = []  # the waits that a progress line would show, and None at the end of each
        self.refused = 0
        self.limiter = RateLimiter(most, clock=lambda: self.now)

    def rest(self, wait, step):
        self.shown.append(wait)
        self.now += step

    def take(self, path=FILE):
        """The seconds until the limiter admits a request, which gets no answer here."""
        since = self.now
        self.limiter.take(path, self.rest)
        return self.now - since

    def ask(self, path=FILE):
        waited = self.take(path)
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
        self.limiter.note(path, status, limit if self.told else {})
        return waited


@pytest.mark.slow
@given(
    quota=st.integers(3, 200),
    counts=st.lists(st.integers(1, 250), min_size=1, max_size=3),
    pause=st.floats(0, 700),
    started=st.floats(1, 1000),
)
def test_a_job_alone_never_runs_into_429(quota, counts, pause, started):
    server = Server(quota, started=started)
    for count in counts:
        for _ in range(count):
            server.ask()
        server.now += pause
    assert server.refused == 0


def test_a_twentieth_of_the_window_is_left_to_others_and_what_they_take_is_counted():
    server = Server(100)
    assert [server.ask() for _ in range(95)].count(0.0) == 95
    assert server.ask() > 290
    server = Server(100)
    server.ask()
    server.spent = 94
    server.ask()
    assert server.ask() > 290


def test_each_kind_has_a_window_and_a_limit_of_ones_own_counts_both():
    server = Server(10)
    while not server.ask():
        pass
    assert server.take(API) == 0.0
    server = Server(1000, most=3)
    waits = [server.ask(path) for path in (API, FILE, FILE, FILE)]
    assert waits[:3] == [0.0, 0.0, 0.0]
    assert waits[3] > 290
    assert server.shown[0].why == "the requests of --max-requests are spent"


def test_a_mirror_without_a_rate_limit_header_is_not_waited_for():
    server = Server(10, told=False)
    assert [server.ask() for _ in range(50)] == [0.0] * 50


ANSWERS = {
    "of its limit": (200, {"ratelimit": "r=999;t=300"}, True),
    "without a limit": (200, {}, True),
    "of another kind": (200, {"ratelimit": '"api";r=999;t=300'}, True),
    "rubbish": (200, {"ratelimit": '"resolvers";r=;t='}, True),
    "a refusal": (429, {}, False),
    "no answer": (0, {}, False),
}


@pytest.mark.parametrize(("status", "headers", "opens"), ANSWERS.values(), ids=ANSWERS)
def test_the_first_request_of_a_window_goes_alone_until_its_answer(status, headers, opens):
    server = Server(1000)
    assert server.take() == 0.0

    def rest(wait, step):
        server.now += step
        if wait and server.now >= 8.0:
            server.limiter.note(FILE, status, headers)

    server.rest = rest
    assert 7.0 <= server.take() < 8.5
    server.rest = lambda _wait, step: setattr(server, "now", server.now + step)
    assert (server.take() == 0.0) is opens  # after a refusal, again one request goes first


def test_a_first_request_without_an_answer_is_waited_for_half_a_minute():
    server = Server(1000)
    waits = [server.take() for _ in range(3)]
    assert waits[0] == 0.0
    assert all(30.0 <= wait < 30.5 for wait in waits[1:])


def test_the_wait_is_shown_as_a_countdown_and_ends():
    server = Server(10)
    while not server.ask():
        assert not server.shown
    *waits, end = server.shown
    assert end is None
    seconds = [wait.seconds for wait in waits]
    assert WINDOW + 1 >= seconds[0] > 290
    assert seconds == sorted(seconds, reverse=True)
    assert {wait.why for wait in waits} == {"the budget of requests for files is spent"}


def test_a_wait_ends_early_if_an_answer_opens_the_window():
    server = Server(100)
    server.ask()
    server.spent = 99
    server.ask()  # its answer says that the window is spent

    def reopened(_wait, step):
        server.now += step
        server.opened, server.spent = server.now, 0
        server.limiter.note(API, 200, {"ratelimit": '"resolvers";r=100;t=400'})

    server.now += 150
    server.rest = reopened
    assert 0 < server.ask() <= 2


@pytest.mark.parametrize(("reset", "seconds"), [("5", 6.0), ("9" * 20, 301.0)])
def test_a_spent_window_is_waited_for_but_never_longer_than_five_minutes(reset, seconds):
    server = Server(100)
    server.take()
    server.limiter.note(FILE, 429, {"ratelimit": f"r=0;t={reset}"})
    assert server.take() == pytest.approx(seconds, abs=0.5)


def test_one_refusal_without_headers_delays_nothing():
    server = Server(100)
    server.ask()
    server.take()
    server.limiter.note(FILE, 429, {})
    assert server.take() == 0.0


def test_an_answer_that_left_before_later_requests_opens_nothing():
    server = Server(100)

    def told(left, reset):
        server.limiter.note(FILE, 200, {"ratelimit": f"r={left};t={reset}"})

    server.take()
    told(2, 300)
    server.take()
    server.take()
    told(2, 300)  # was sent before the two requests arrived
    assert server.take() > 299
    server = Server(100)
    server.take()
    told(50, 300)
    told(0, 2)  # of the window before
    assert server.take() == 0.0


STEPS = st.lists(
    st.tuples(
        st.floats(0, 400),
        st.none()
        | st.tuples(st.sampled_from([0, 200, 429, 500]), st.integers(0, 999), st.integers(0, 999)),
    ),
    max_size=20,
)


@given(STEPS)
def test_no_wait_is_longer_than_a_window_whatever_the_server_sent(steps):
    server = Server(100)
    for seconds, answer in steps:
        server.now += seconds
        if answer is None:
            assert server.take() <= WINDOW + 31 + 1e-6  # and half a minute for the first request
        else:
            status, left, reset = answer
            server.limiter.note(FILE, status, {"ratelimit": f"r={left};t={reset}"})


# --- the budget of one model ----------------------------------------------------------------------


def budget(seconds=60.0):
    talk, bounds = ProgressLines.of(ignore_message), Bounds("one model", seconds, 1000)
    return Budget(bounds, RateLimiter(), talk, threading.Event())


def test_more_bytes_and_more_seconds_than_the_bounds_end_it():
    with pytest.raises(SourceError, match="expected at most 1,000 of one model"):
        budget().check(1001)
    for late in (lambda one: one.check(1), lambda one: one.admit(FILE)):
        with pytest.raises(SourceError, match="not fetched within 0 s"):
            late(budget(seconds=0.0))


def test_a_wait_that_a_server_requires_is_excused_once_a_window(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now[0])
    patient = budget(seconds=1.0)
    for _ in range(4):
        with patient.held(100.0):
            now[0] += 100.0
    assert patient.seconds == 100.0


def test_waits_of_several_threads_at_the_same_time_count_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now[0])
    model = budget()
    with model.held(0.0):
        now[0] += 1
        with model.held(0.0):
            now[0] += 1
        now[0] += 1
        assert model.seconds == 0
    now[0] += 5
    assert model.seconds == 5
