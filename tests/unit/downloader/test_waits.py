"""What is shown of a wait, and how it ends: by clocks of our own, and by threads."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.waits import InLines, ProgressLines, Wait, Waits
from auditor.errors import SourceError


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@given(seconds=st.floats(2.1, 300), step=st.floats(0.1, 5))
def test_a_log_has_a_line_at_the_start_of_a_wait_and_one_a_minute(seconds, step):
    said, clock = [], Clock()
    show = InLines(said.append, clock)
    while (left := seconds - clock.now) > 0:
        show(Wait("busy", left))
        clock.now += step
    show(None)
    assert said[0] == f"busy; waiting {seconds:.0f} s"
    assert (seconds - step) // (60 + step) <= len(said) - 1 <= seconds // 60


def test_another_wait_has_lines_of_its_own():
    said, clock = [], Clock()
    show = InLines(said.append, clock)
    for clock.now, wait in (
        (0.0, Wait("busy", 50.0)),
        (1.0, Wait("busy", 49.2)),  # the same
        (2.0, Wait("busy", 90.0)),  # longer
        (3.0, Wait("late", 89.0)),  # for something else
        (4.0, None),
        (5.0, Wait("late", 87.0)),  # again
    ):
        show(wait)
    waits = ("busy; waiting 50 s", "busy; waiting 90 s", "late; waiting 89 s", "late; waiting 87 s")
    assert said == list(waits)


WHO = st.integers(0, 3)
TOLD = st.lists(st.tuples(WHO, st.none() | st.floats(0, 300)), max_size=30)


@given(TOLD)
def test_of_several_waits_the_one_is_shown_that_ends_last(told):
    """And of those alone that were long once."""
    shown, waits, long = [], {}, set()
    board = Waits(shown.append)
    for who, seconds in told:
        before = len(shown)
        board.tell(who, None if seconds is None else Wait("busy", seconds))
        if seconds is None:
            waits.pop(who, None)
            heard = who in long
            long.discard(who)
        else:
            if seconds > 2:
                long.add(who)
            heard = who in long
            if heard:
                waits[who] = seconds
        expected = Wait("busy", max(waits.values())) if waits else None
        assert shown[before:] == ([expected] if heard else [])


def test_a_short_wait_is_not_reported():
    shown = []
    Waits(shown.append).rest_through(Wait("busy", 0.01), threading.Event())
    assert shown == []


def test_a_long_wait_is_shown_and_ends_as_soon_as_it_is_over():
    shown, over = [], threading.Event()
    waits = Waits(lambda wait: (shown.append(wait), over.set()))
    since = time.monotonic()
    with pytest.raises(SourceError, match="stopped, because another request has failed"):
        waits.rest_through(Wait("busy", 250.0), over)
    assert time.monotonic() - since < 100
    first, last = shown
    assert first.why == "busy"
    assert 249 < first.seconds <= 250
    assert last is None


def test_a_listener_for_lines_gets_waits_as_lines():
    said = []
    ProgressLines.of(said.append).waits.tell("who", Wait("busy", 9.0))
    talk = ProgressLines(said.append)
    assert ProgressLines.of(talk) is talk
    talk("and a line")
    assert said == ["busy; waiting 9 s", "and a line"]
