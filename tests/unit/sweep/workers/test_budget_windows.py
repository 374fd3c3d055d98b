"""Rules about one window of requests, by times of the test's own: pure, as the rules are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.retry import WINDOW, RateLimit
from auditor.sweep.workers.budget import RateWindow, opens, spared

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
