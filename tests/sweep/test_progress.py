"""What a sweep says while it runs."""

from collections import Counter

from rich.progress import Progress as Bar

from auditor.sweep.progress import Lines, Quiet, Terminal, counted, duration


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_log_gets_a_line_every_ten_seconds_with_rate_and_time_left():
    said, clock = [], Clock()
    lines = Lines(said.append, clock)
    lines.begin(100)
    for number in range(40):
        clock.now += 0.5
        lines.done("findings" if number % 10 == 3 else "clean")
    assert said == [
        "100 models to audit",
        "20 of 100 audited (18 clean, 2 findings), 2.0/s, 0:40 left",
        "40 of 100 audited (36 clean, 4 findings), 2.0/s, 0:30 left",
    ]


def test_a_selection_that_takes_long_says_how_far_it_is():
    said, clock = [], Clock()
    lines = Lines(said.append, clock)
    for found in (1000, 2000, 3000):
        clock.now += 6
        lines.selected(found)
    assert said == ["2,000 models found"]


def test_a_wait_is_said_once():
    said, clock = [], Clock()
    lines = Lines(said.append, clock)
    for left in (0.0, 0.5, 200.0, 199.0, 198.0):
        lines.waiting(left)
        clock.now += 1
    assert said == ["the budget of requests is spent; waiting 200 s"]


def test_a_terminal_counts_down_and_then_shows_the_counts_again(monkeypatch):
    shown = []
    monkeypatch.setattr(Bar, "update", lambda *_, **fields: shown.append(fields["said"]))
    with Terminal() as bar:
        for left in (0.0, 2.0, 1.0, 0.0, 0.0):
            bar.waiting(left)
    assert shown == [
        "none yet; the budget is spent, 2 s to wait",
        "none yet; the budget is spent, 1 s to wait",
        "none yet",
    ]


def test_a_terminal_shows_a_bar_and_leaves_nothing_of_it(capsys):
    with Terminal() as bar:
        bar.selected(3)
        bar.begin(3)
        for verdict in ("clean", "findings", "unaudited"):
            bar.done(verdict)
        bar.waiting(20)
        bar.waiting(0)
    assert capsys.readouterr().out == ""


def test_quiet_is_quiet(capsys):
    with Quiet() as shown:
        shown.begin(1)
        shown.done("clean")
        shown.waiting(9)
    assert capsys.readouterr() == ("", "")


def test_counts_and_times_are_written_as_people_write_them():
    assert counted(Counter(clean=1200, unaudited=3)) == "1,200 clean, 3 unaudited"
    assert counted(Counter()) == "none yet"
    assert (duration(59.6), duration(61), duration(3723)) == ("1:00", "1:01", "1:02:03")
