"""The lines of a sweep while it runs: in a log, and on a terminal."""

from collections import Counter

import pytest

from auditor.downloader.waits import ProgressLines, Wait, Waits
from auditor.sweep.progress import Progress, duration, verdict_counts


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_log_gets_a_line_every_ten_seconds_with_rate_and_time_left():
    said, clock = [], Clock()
    lines = Progress(ProgressLines(said.append), clock=clock)
    for found in (1000, 2000, 3000):
        clock.now += 6
        lines.selected(found)
    lines.begin(100)
    for number in range(40):
        clock.now += 0.5
        lines.done("findings" if number % 10 == 3 else "clean")
    assert said == [
        "2,000 models found",
        "100 models to audit",
        "20 of 100 audited (18 clean, 2 with findings), 2.0/s, 0:00:40 left",
        "40 of 100 audited (36 clean, 4 with findings), 2.0/s, 0:00:30 left",
    ]


def test_a_terminal_shows_one_line_ten_times_a_second_or_a_wait():
    shown, waits, clock = [], Waits(lambda _wait: None), Clock()
    talk = ProgressLines(shown.append, waits, shown.append)
    with Progress(talk, is_terminal=True, clock=clock) as lines:
        lines.begin(1000)
        for _ in range(1000):
            clock.now += 0.001
            lines.done("clean")
        assert len(shown) == pytest.approx(10, abs=2)
        assert " of 1,000 audited (" in shown[-1]
        waits.tell("a thread", Wait("the budget is spent", 60.0))
        clock.now += 1
        lines.done("clean")
        assert len(shown) == pytest.approx(10, abs=2)
        waits.tell("a thread", None)
    assert shown[-1] is None


def test_counts_and_times_are_written_as_people_write_them():
    assert verdict_counts(Counter(clean=1200, unaudited=3)) == "1,200 clean, 3 unaudited"
    assert (duration(59.6), duration(61), duration(3723)) == ("0:01:00", "0:01:01", "1:02:03")
