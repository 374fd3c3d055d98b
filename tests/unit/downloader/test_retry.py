"""How long a refusal asks to wait, and how often that is done."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.retry import (
    ATTEMPTS,
    PassingError,
    RetryPolicy,
    next_wait,
    requested_wait,
)
from auditor.downloader.waits import ProgressLines
from auditor.errors import Reason, SourceError

SPENT = {"ratelimit": '"resolvers";r=0;t=55'}
LEFT = {"ratelimit": '"resolvers";r=9;t=55'}


def test_a_refusal_gives_the_seconds_to_wait(subtests):
    for status, headers, wait in [
        (429, {"retry-after": "7"}, 7.0),
        (429, {"retry-after": " 7 "}, 7.0),
        (429, {"retry-after": "-1"}, None),
        (429, {"retry-after": "9" * 999}, 1e9),
        (429, {"retry-after": "Fri, 01 Jan 2010 00:00:00 +99999999999999999999"}, None),
        (429, {"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"}, None),
        (429, {"retry-after": "Fri, 01 Jan 2010 00:00:00 GMT"}, 0.0),
        (429, SPENT, 55.0),
        (429, LEFT, None),
        (429, SPENT | {"retry-after": "7"}, 7.0),
        (503, SPENT, None),
        (503, {"retry-after": "7"}, 7.0),
    ]:
        with subtests.test(status=status, headers=headers):
            assert requested_wait(status, headers) == wait


def test_a_date_to_come_is_a_wait():
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3500 < requested_wait(503, {"retry-after": later}) <= 3600


def called(attempt, **options):
    return RetryPolicy(ProgressLines(list), **options).call(attempt)


@pytest.fixture(autouse=True)
def _shorter_waits(machine):
    """The waits of `machine`."""


def failing(times: int, fault: Exception):
    """An attempt that fails so many times and then gives its own number."""
    made = []

    def attempt(_silence: float) -> int:
        made.append(fault)
        if len(made) <= times:
            raise fault
        return len(made)

    return attempt


def test_five_attempts_are_made_and_the_last_fault_is_reported():
    attempt = failing(ATTEMPTS - 1, PassingError(Reason.TIMED_OUT, "slow"))
    assert called(attempt) == ATTEMPTS
    with pytest.raises(SourceError, match=r"^slow \(tried 5 times\)$") as raised:
        called(failing(9, PassingError(Reason.TIMED_OUT, "slow")))
    assert raised.value.reason is Reason.TIMED_OUT


def test_what_does_not_pass_is_not_tried_again():
    with pytest.raises(SourceError, match=r"^gone$"):
        called(failing(1, SourceError(Reason.NOT_FOUND, "gone")))


def test_no_wait_goes_past_one_window():
    fault = PassingError(Reason.RATE_LIMITED, "busy", wait=302)
    with pytest.raises(SourceError, match="busy: another 302 s is too long to wait") as raised:
        called(failing(1, fault))
    assert raised.value.reason is Reason.RATE_LIMITED


WAITS = st.none() | st.floats(0, 400)


@given(st.lists(WAITS, max_size=10))
def test_the_window_is_for_all_waits_together_and_ends_them(asked):
    """One that is asked for is waited for, and no more than that by a fifth of a second."""
    waited = 0.0
    try:
        for tried, wait in enumerate(asked, 1):
            seconds = next_wait(PassingError(Reason.RATE_LIMITED, "busy", wait), tried, waited)
            assert wait is None or wait <= seconds <= wait + 0.2
            waited += seconds
    except SourceError:
        assert tried == ATTEMPTS or waited + (wait or 2) > 300
    assert waited <= 301


def silent(seconds):
    fault = PassingError(Reason.TIMED_OUT, "slow")
    fault.silence = seconds
    return fault


def test_silence_is_borne_for_fourteen_seconds_while_someone_is_watching(subtests):
    for seconds, times in [(3.0, 5), (9.0, 2), (13.0, 1)]:
        with subtests.test(seconds=seconds, times=times):
            times_said = "once" if times == 1 else f"{times} times"
            with pytest.raises(SourceError, match=rf"^slow \(tried {times_said}\)$"):
                called(failing(9, silent(seconds)))


def test_an_attempt_gets_the_remaining_silence():
    given_seconds = []

    def attempt(silence):
        given_seconds.append(silence)
        raise silent(6.0)

    with pytest.raises(SourceError, match="slow"):
        called(attempt)
    assert given_seconds == [14.0, 8.0, 2.0]


def test_who_expects_long_silences_is_not_cut_short(machine):
    machine.setattr("auditor.downloader.retry.time_out", lambda: 60.0)
    with pytest.raises(SourceError, match=r"tried 2 times"):
        called(failing(9, silent(60.0)))
    with pytest.raises(SourceError, match=r"tried 4 times"):
        called(failing(9, silent(60.0)), silence=240.0)


def test_only_a_wait_that_a_server_requires_is_reported_while_it_lasts():
    held = []

    @contextmanager
    def hold(seconds):
        since = time.monotonic()
        yield
        held.append((seconds, time.monotonic() - since))

    asked, own = (PassingError(Reason.RATE_LIMITED, "busy", wait) for wait in (0.01, None))
    for fault in (asked, own):
        assert called(failing(1, fault), during_wait=hold) == 2
    [(seconds, lasted)] = held
    assert 0.01 <= seconds <= lasted < 1


def test_when_it_is_over_nothing_is_waited_for():
    policy = RetryPolicy(ProgressLines(list))

    def attempt(_silence: float) -> None:
        policy.end()
        raise PassingError(Reason.RATE_LIMITED, "busy", wait=250)

    with pytest.raises(SourceError, match="stopped, because another request has failed"):
        policy.call(attempt)


@given(st.text(max_size=80) | st.text(alphabet="0123456789:,+- GMTFriJan", max_size=60))
def test_any_retry_after_is_a_wait_or_ignored(text):
    found = requested_wait(503, {"retry-after": text})
    assert found is None or found >= 0
