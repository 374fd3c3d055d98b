"""The progress of a sweep: one line, on a terminal always the newest, else every ten seconds."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self

from auditor.downloader.fetching import ignore_message
from auditor.downloader.waits import ProgressLines
from auditor.formats.text import counted


class Progress:
    """A context manager that shows how many models are selected and audited.

    Waits of the sweep's threads are shown by `talk`, too.
    """

    def __init__(
        self,
        talk: ProgressLines | None = None,
        *,
        is_terminal: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """On a terminal a line replaces the one before, ten times a second."""
        self.talk = talk or ProgressLines(ignore_message)
        self._show = self.talk.progress if is_terminal else self._say
        self._every = 0.1 if is_terminal else 10.0  # seconds between two lines
        self._clock = clock
        self._since = self._last_line = clock()
        self._counts: Counter[str] = Counter()
        self._models = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._show(None)

    def selected(self, models: int) -> None:
        """Report the number of models selected so far."""
        if self._is_due():
            self._show(f"{counted(models, 'model')} found")

    def begin(self, models: int) -> None:
        """Report the number of models to audit, and start the clock."""
        self._models = models
        self._since = self._last_line = self._clock()
        self._show(f"{counted(models, 'model')} to audit")

    def done(self, verdict: str) -> None:
        """Count an audited model by its verdict."""
        self._counts[verdict] += 1
        if self._is_due():
            self._show(self._sentence())

    def _say(self, line: str | None) -> None:
        if line is not None:
            self.talk(line)

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


def verdict_counts(counts: Mapping[str, int]) -> str:
    """Return counts of models as text: `812 clean, 9 with findings, 3 unaudited`."""
    words = {"findings": "with findings"}
    return ", ".join(f"{count:,} {words.get(name, name)}" for name, count in counts.items())


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds: `0:02:03`."""
    return str(timedelta(seconds=round(seconds)))
