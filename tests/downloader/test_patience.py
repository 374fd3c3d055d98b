"""How long a refusal asks to wait, and how often that is done."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from auditor.downloader.patience import ATTEMPTS, PassingError, Patience, asked_wait
from auditor.errors import Reason, SourceError

SPENT = {"ratelimit": '"resolvers";r=0;t=55'}
LEFT = {"ratelimit": '"resolvers";r=9;t=55'}


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {}, None),
        (429, {"retry-after": "7"}, 7.0),
        (429, {"retry-after": " 7 "}, 7.0),
        (429, {"retry-after": "0"}, 0.0),
        (429, {"retry-after": "soon"}, None),
        (429, {"retry-after": "-1"}, None),
        (429, {"retry-after": "9" * 999}, 999_999_999.0),
        (429, {"retry-after": "Fri, 01 Jan 2010 00:00:00 GMT"}, 0.0),
        (429, {"retry-after": "Fri, 01 Jan 2010 00:00:00 -0000"}, 0.0),
        (429, {"retry-after": "Fri, 99 Jan 2010 00:00:00 GMT"}, None),
        (429, SPENT, 55.0),
        (429, LEFT, None),
        (429, SPENT | {"retry-after": "7"}, 7.0),
        (429, {"ratelimit": "nonsense"}, None),
        (503, SPENT, None),
        (503, {"retry-after": "7"}, 7.0),
    ],
)
def test_a_refusal_says_how_long_to_wait(status, headers, wait):
    assert asked_wait(status, headers) == wait


def test_a_date_to_come_is_a_wait():
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3500 < asked_wait(503, {"retry-after": later}) <= 3600


@pytest.fixture
def told(machine):  # noqa: ARG001 - shortens the waits
    return []


def failing(times: int, fault: Exception):
    """An attempt that fails so many times and then gives its own number."""
    made = []

    def attempt() -> int:
        made.append(fault)
        if len(made) <= times:
            raise fault
        return len(made)

    return attempt


@pytest.mark.parametrize("times", range(ATTEMPTS))
def test_five_attempts_are_made(told, times):
    attempt = failing(times, PassingError(Reason.TIMED_OUT, "slow"))
    assert Patience(told.append).call(attempt) == times + 1


def test_after_five_attempts_the_last_fault_is_told(told):
    with pytest.raises(SourceError, match=r"^slow \(tried 5 times\)$") as raised:
        Patience(told.append).call(failing(9, PassingError(Reason.TIMED_OUT, "slow")))
    assert raised.value.reason is Reason.TIMED_OUT


def test_what_does_not_pass_is_not_tried_again(told):
    with pytest.raises(SourceError, match=r"^gone$"):
        Patience(told.append).call(failing(1, SourceError(Reason.NOT_FOUND, "gone")))


def test_no_wait_goes_past_one_window(told):
    fault = PassingError(Reason.RATE_LIMITED, "busy", wait=302)
    with pytest.raises(SourceError, match="busy: 302 s is too long to wait") as raised:
        Patience(told.append).call(failing(1, fault))
    assert raised.value.reason is Reason.RATE_LIMITED
    assert told == []


def test_the_window_is_for_all_waits_together(told, machine):
    machine.setattr("auditor.downloader.patience.WINDOW", -0.9)  # a tenth of a second, with jitter
    fault = PassingError(Reason.RATE_LIMITED, "busy", wait=0.06)
    assert Patience(told.append).call(failing(1, fault)) == 2
    with pytest.raises(SourceError, match="is too long to wait"):
        Patience(told.append).call(failing(2, fault))


def test_a_wait_that_a_server_asks_for_is_told_before_it_and_no_other_is(told):
    held = []
    asked, own = (PassingError(Reason.RATE_LIMITED, "busy", wait) for wait in (0.01, None))
    for fault in (asked, own):
        assert Patience(told.append, held.append).call(failing(1, fault)) == 2
    (only,) = held
    assert 0.01 <= only < 1


def test_when_it_is_over_nothing_is_waited_for(told):
    patience = Patience(told.append)

    def attempt() -> None:
        patience.end()
        raise PassingError(Reason.RATE_LIMITED, "busy", wait=250)

    with pytest.raises(SourceError, match="stopped, because another request has failed"):
        patience.call(attempt)


def test_the_same_wait_is_told_once(told, machine):
    machine.setattr("auditor.downloader.patience._WORTH_SAYING", 0)
    patience = Patience(told.append)
    for _ in range(2):
        assert patience.call(failing(1, PassingError(Reason.RATE_LIMITED, "busy", wait=0))) == 2
    assert told == ["busy; waiting 0 s"]
