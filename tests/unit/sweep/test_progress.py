"""What a sweep says while it runs."""

from collections import Counter

import pytest
from rich.progress import Progress as Bar

from auditor.downloader.waits import Wait
from auditor.sweep.progress import Progress, Terminal, duration, verdict_counts


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_log_gets_a_line_every_ten_seconds_with_rate_and_time_left():
    said, clock = [], Clock()
    lines = Progress(said.append, clock)
    lines.begin(100)
    for number in range(40):
        clock.now += 0.5
        lines.done("findings" if number % 10 == 3 else "clean")
    assert said == [
        "100 models to audit",
        "20 of 100 audited (18 clean, 2 with findings), 2.0/s, 0:00:40 left",
        "40 of 100 audited (36 clean, 4 with findings), 2.0/s, 0:00:30 left",
    ]


def test_a_slow_selection_shows_its_progress():
    said, clock = [], Clock()
    lines = Progress(said.append, clock)
    for found in (1000, 2000, 3000):
        clock.now += 6
        lines.selected(found)
    assert said == ["2,000 models found"]


def test_a_wait_is_reported_at_its_start_and_once_a_minute():
    said, clock = [], Clock()
    lines = Progress(said.append, clock)
    for left in range(130, 0, -1):
        lines.waiting(Wait("the budget is spent", float(left)))
        clock.now += 1
    lines.waiting(None)
    assert said == [f"the budget is spent; waiting {left} s" for left in (130, 70, 10)]


def test_a_terminal_counts_down_next_to_the_progress_line(monkeypatch):
    shown, clock = [], Clock()
    told = ("description", "total", "completed")
    update = Bar.update
    monkeypatch.setattr(
        Bar,
        "update",
        lambda *args, **now: (shown.append(tuple(map(now.get, told))), update(*args, **now)),
    )
    with Terminal(clock) as bar:
        bar.waiting(Wait("the budget is spent", 2.0))
        bar.begin(4)
        clock.now += 0.5
        bar.done("clean")
        bar.waiting(Wait("the budget is spent", 1.0))
        bar.waiting(None)
    line = "1 of 4 audited (1 clean), 2.0/s, 0:00:02 left"
    assert shown == [
        ("the budget is spent; waiting 2 s; selecting", None, 0),
        ("the budget is spent; waiting 2 s; 4 models to audit", 4, 0),
        (f"the budget is spent; waiting 2 s; {line}", 4, 1),
        (f"the budget is spent; waiting 1 s; {line}", 4, 1),
        (line, 4, 1),
    ]


def test_a_reason_to_wait_is_escaped_on_a_terminal(monkeypatch):
    shown = []
    monkeypatch.setattr(Bar, "update", lambda *_, **now: shown.append(now["description"]))
    Terminal().waiting(Wait("no answer from \x1b[2J", 2.0))
    assert shown == [r"no answer from \x1b[2J; waiting 2 s; selecting"]


def test_a_terminal_is_written_to_ten_times_a_second(monkeypatch):
    shown, clock = [], Clock()
    monkeypatch.setattr(Bar, "update", lambda *_, **now: shown.append(now["completed"]))
    bar = Terminal(clock)
    bar.begin(1000)
    for _ in range(1000):
        clock.now += 0.001
        bar.done("clean")
    assert len(shown) == pytest.approx(10, abs=2)


def test_a_terminal_shows_a_bar_and_leaves_nothing_of_it(capsys):
    with Terminal() as bar:
        bar.selected(3)
        bar.begin(3)
        for verdict in ("clean", "findings", "unaudited"):
            bar.done(verdict)
        bar.waiting(Wait("all", 20.0))
        bar.waiting(None)
    assert capsys.readouterr().out == ""


def test_quiet_is_quiet(capsys):
    with Progress() as shown:
        shown.begin(1)
        shown.done("clean")
        shown.waiting(Wait("all", 9.0))
    assert capsys.readouterr() == ("", "")


def test_counts_and_times_are_written_as_people_write_them():
    assert verdict_counts(Counter(clean=1200, unaudited=3)) == "1,200 clean, 3 unaudited"
    assert (duration(59.6), duration(61), duration(3723)) == ("0:01:00", "0:01:01", "1:02:03")
