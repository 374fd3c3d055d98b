"""The progress of a sweep: a bar on a terminal, else a line every ten seconds."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self

from auditor.downloader.fetching import Say, ignore_message
from auditor.downloader.waits import InLines, Wait
from auditor.formats.text import counted
from auditor.messages import printable


class Progress:
    """A context manager that writes a line of progress every ten seconds, for a log."""

    _every = 10.0  # seconds between two lines

    def __init__(
        self, say: Say = ignore_message, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since = self._last_line = clock()
        self._counts: Counter[str] = Counter()
        self._models = 0
        self._waits = InLines(say, clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def selected(self, models: int) -> None:
        """Report the number of models selected so far."""
        if self._is_due():
            self._say(f"{counted(models, 'model')} found")

    def begin(self, models: int) -> None:
        """Report the number of models to audit, and start the clock."""
        self._models = models
        self._since = self._last_line = self._clock()
        self._say(f"{counted(models, 'model')} to audit")

    def done(self, verdict: str) -> None:
        """Count an audited model by its verdict."""
        self._counts[verdict] += 1
        if self._is_due():
            self._say(self._sentence())

    def waiting(self, wait: Wait | None) -> None:
        """Report a long wait; called with None when the wait is over."""
        self._waits(wait)

    def _is_due(self) -> bool:
        is_due = self._clock() - self._last_line >= self._every
        if is_due:
            self._last_line = self._clock()
        return is_due

    def _sentence(self) -> str:
        done, seconds = self._counts.total(), self._clock() - self._since
        rate = done / seconds if seconds else 0.0
        left = f", {duration((self._models - done) / rate)} left" if rate else ""
        counts = verdict_counts(dict(sorted(self._counts.items())))
        return f"{done:,} of {self._models:,} audited ({counts}), {rate:.1f}/s{left}"


class Terminal(Progress):
    """A bar on stderr with the current line next to it, updated ten times a second."""

    _every = 0.1

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich import console, progress  # noqa: PLC0415 - 40 ms, only on a terminal

        super().__init__(self._show, clock)
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=None),
            progress.TextColumn("{task.description}", markup=False),
            console=console.Console(stderr=True),
            transient=True,
        )
        self._line = "selecting"
        self._task = self._bar.add_task(self._line, total=None)
        self._wait: Wait | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def waiting(self, wait: Wait | None) -> None:
        self._wait = wait
        self._show(self._line)

    def _show(self, line: str) -> None:
        self._line = line
        text = f"{self._wait.shown}; {line}" if self._wait else line  # may be cut
        total, done = self._models or None, self._counts.total()
        self._bar.update(self._task, description=printable(text), total=total, completed=done)


def verdict_counts(counts: Mapping[str, int]) -> str:
    """Return counts of models as text: `812 clean, 9 with findings, 3 unaudited`."""
    words = {"findings": "with findings"}
    return ", ".join(f"{count:,} {words.get(name, name)}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds: `0:02:03`."""
    return str(timedelta(seconds=round(seconds)))
