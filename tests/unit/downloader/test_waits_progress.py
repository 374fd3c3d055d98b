"""How far reading has come is told after a second, ten times a second, and is gone at the end."""

from auditor.downloader.waits import (
    ProgressLines,
    ReadingProgress,
    Wait,
    Waits,
    headers_read,
    numbers_read,
)

HEADERS = headers_read(lambda: 2_500_000)


def told(*events, of=10, line=HEADERS):
    """What is shown of (seconds, done)."""
    shown, now = [], [0.0]
    progress = ReadingProgress(shown.append, line, lambda: now[0])
    for seconds, done in events:
        now[0] = seconds
        progress(done, of)
    return shown


def test_work_of_less_than_a_second_is_not_reported():
    assert told((0.2, 1), (0.5, 4), (0.99, 9), (0.995, 10)) == [None]


def test_after_a_second_each_tenth_of_a_second_is_reported():
    line = "5 of 10 headers read, 2.5 MB; 2 s left"
    assert told((0.9, 4), (2.0, 5), (2.05, 6)) == [line]
    assert len(told((2.0, 5), (2.2, 6), (2.4, 7), (2.5, 10))) == 4


def test_the_pace_of_reading_numbers_is_shown():
    line = "3.0 of 12.0 GB of numbers read, 1.5 GB/s; 6 s left"
    assert told((2.0, 3 * 10**9), of=12 * 10**9, line=numbers_read) == [line]


def test_before_the_first_header_the_hub_is_waited_for():
    assert told((0.5, 0), (1.2, 0), (2.0, 5), (2.1, 10)) == [
        "waiting for the Hub",
        "5 of 10 headers read, 2.5 MB; 2 s left",
        None,
    ]


def test_a_wait_is_shown_in_the_place_of_progress():
    shown = []
    talk = ProgressLines(shown.append, Waits(lambda _wait: None), shown.append)
    talk.progress("a")
    talk.waits.tell("one", Wait("refused", 10.0))
    talk.progress("b")
    talk.waits.tell("one", None)
    talk.progress("c")
    assert shown == ["a", "c"]
