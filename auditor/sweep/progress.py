"""How far a sweep is: a bar on a terminal, a line now and then elsewhere, and a line at the end."""

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from auditor.downloader.waits import InLines, Wait

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_EVERY = 10.0  # seconds between lines where no bar is shown
_VERDICTS = ("clean", "findings", "unaudited")


class Progress:
    """Receives the progress of a sweep, and shows nothing; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def selected(self, models: int) -> None:
        """So many models were found until now."""

    def begin(self, models: int) -> None:
        """So many are to be audited."""

    def done(self, verdict: str) -> None:
        """One is."""

    def waiting(self, wait: Wait | None) -> None:
        """Something is waited for that takes long; None: it is over."""


class Lines(Progress):
    """A line every ten seconds, for logs."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since = self._said = clock()
        self._counts: Counter[str] = Counter()
        self._models = 0
        self._waits = InLines(say, clock)

    def selected(self, models: int) -> None:
        if self._due():
            self._say(f"{models:,} models found")

    def begin(self, models: int) -> None:
        self._models, self._since, self._said = models, self._clock(), self._clock()
        self._say(f"{models:,} models to audit")

    def done(self, verdict: str) -> None:
        self._counts[verdict] += 1
        if self._due():
            self._say(self._sentence())

    def waiting(self, wait: Wait | None) -> None:
        self._waits(wait)

    def _due(self) -> bool:
        due = self._clock() - self._said >= _EVERY
        if due:
            self._said = self._clock()
        return due

    def _sentence(self) -> str:
        done, seconds = self._counts.total(), self._clock() - self._since
        rate = done / seconds if seconds else 0.0
        left = f", {duration((self._models - done) / rate)} left" if rate else ""
        counts = verdict_counts(self._counts)
        return f"{done:,} of {self._models:,} audited ({counts}), {rate:.1f}/s{left}"


class Terminal(Progress):
    """A bar on stderr: how many, how fast, how long yet, and what came of them."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - 40 ms, only on a terminal
        from rich.progress import (  # noqa: PLC0415 - the same
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar: Bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("selecting", total=None, rate="", said="")
        self._counts: Counter[str] = Counter()
        self._since = time.monotonic()
        self._shown = 0.0
        self._wait: Wait | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def selected(self, models: int) -> None:
        self._bar.update(self._task, completed=models)

    def begin(self, models: int) -> None:
        self._since = time.monotonic()
        self._bar.reset(self._task, total=models, description="auditing", rate="", said="")

    def done(self, verdict: str) -> None:
        self._counts[verdict] += 1
        now = time.monotonic()
        if now - self._shown < 0.1:  # noqa: PLR2004 - seconds; a bar that moves 10 times in one
            return
        self._shown = now
        total = self._counts.total()
        rate = f"{total / (now - self._since):.1f}/s"
        self._bar.update(self._task, completed=total, rate=rate, said=self._said())

    def waiting(self, wait: Wait | None) -> None:
        self._wait = wait
        self._bar.update(self._task, said=self._said())

    def _said(self) -> str:
        counts = verdict_counts(self._counts) if self._counts else ""
        return "; ".join(filter(None, (counts, self._wait.shown if self._wait else "")))


def verdict_counts(counts: Counter[str]) -> str:
    """`812 clean, 9 findings, 3 unaudited`, zeros left out."""
    there = [f"{counts[name]:,} {name}" for name in _VERDICTS if counts[name]]
    return ", ".join(there) or "none yet"


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
