"""Messages while an audit waits: the reason, the seconds left, the progress of a read."""

import time
from collections.abc import Callable
from threading import Event, Lock, get_ident
from typing import NamedTuple

from auditor.errors import Reason, SourceError

LONG = 2.0  # seconds; a shorter wait is not shown
STEP = 1.0  # seconds between two updates of a wait
_EVERY = 60.0  # seconds between two lines of one wait
STOPPED = "stopped, because another request has failed"
_SAME = 3.0  # two waits are shown as one if their ends differ by less than so many seconds


class Wait(NamedTuple):
    """The reason for a wait, and the seconds left."""

    why: str
    seconds: float

    @property
    def shown(self) -> str:
        return f"{self.why}; waiting {self.seconds:.0f} s"


# A function that is called repeatedly during a wait, and with None when the wait is over.
Show = Callable[[Wait | None], None]


class InLines:
    """A log of waits: one line at the start of each, then one a minute."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._why: str | None = None  # the reason for the wait that was shown last
        self._until = self._shown_at = 0.0  # when that wait ends, and when it was shown

    def __call__(self, wait: Wait | None) -> None:
        if wait is None:
            self._why = None
            return
        now = self._clock()
        until = now + wait.seconds
        is_same = wait.why == self._why and abs(until - self._until) < _SAME
        if not is_same or now - self._shown_at >= _EVERY:
            self._why, self._until, self._shown_at = wait.why, until, now
            self._say(wait.shown)


class Waits:
    """The long waits of several threads; only the wait that ends last is shown."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._lock = Lock()
        self._waits: dict[object, Wait] = {}
        self.longest: Wait | None = None  # the wait that is shown

    def tell(self, owner: object, wait: Wait | None) -> None:
        """Set the current wait of `owner` (None: the wait is over), and show the longest wait.

        A short wait is not shown; a wait that was long when it began is shown until it ends.
        """
        with self._lock:
            is_shown = owner in self._waits
            if wait is not None and (is_shown or wait.seconds > LONG):
                self._waits[owner] = wait
            elif is_shown:
                del self._waits[owner]
            else:
                return
            self.longest = max(self._waits.values(), key=lambda one: one.seconds, default=None)
            self._show(self.longest)

    def rest(self, wait: Wait | None, step: float, over: Event) -> None:
        """Show `wait` and sleep for `step` seconds; if `wait` is None, only end the display.

        Raise SourceError if `over` is set meanwhile.
        """
        self.tell(get_ident(), wait)
        if wait and over.wait(step):
            self.tell(get_ident(), None)
            raise SourceError(Reason.UNREACHABLE, STOPPED)

    def rest_through(self, wait: Wait, over: Event) -> None:
        """Sleep to the end of a wait, a step at a time."""
        until = time.monotonic() + wait.seconds
        while (remaining := until - time.monotonic()) > 0:
            self.rest(wait._replace(seconds=remaining), min(remaining, STEP), over)
        self.rest(None, 0.0, over)


class ProgressLines:
    """The receiver of the messages of a running audit: lines, waits and progress.

    Several threads call it. On a terminal, waits and progress overwrite one line. `progress` is
    called repeatedly with a line, and with None at its end; during a wait, the wait is shown.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        waits: Waits | None = None,
        progress: Callable[[str | None], None] = lambda _line: None,
    ) -> None:
        self._say = say
        self.waits = waits or Waits(InLines(say))
        self._progress = progress

    def __call__(self, line: str) -> None:
        self._say(line)

    def progress(self, line: str | None) -> None:
        if self.waits.longest is None:
            self._progress(line)

    @classmethod
    def of(cls, say: Callable[[str], None]) -> "ProgressLines":
        """Return `say` if it is a ProgressLines, else one that passes its lines to `say`."""
        return say if isinstance(say, ProgressLines) else cls(say)


# --- progress -------------------------------------------------------------------------------------


_SOON = 1.0  # seconds before the first line
_STEP = 0.1  # seconds between two lines


class ReadingProgress:
    """A progress line, shown at most ten times a second after the first second."""

    def __init__(
        self,
        show: Callable[[str | None], None],
        line: Callable[[int, int, float], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `show` with a line, or None at the end; `line` formats (count, total, seconds)."""
        self._show = show
        self._line = line
        self._clock = clock
        self._since = clock()
        self._shown_at = self._since + _SOON - _STEP

    def __call__(self, count: int, total: int) -> None:
        now = self._clock()
        if count == total:
            self._show(None)
        elif now - self._shown_at >= _STEP:
            self._shown_at, seconds = now, now - self._since
            remaining = f"; {seconds / count * (total - count):.0f} s left" if count else ""
            self._show(self._line(count, total, seconds) + remaining)


def headers_read(received: Callable[[], int]) -> Callable[[int, int, float], str]:
    """Return a function that formats `5 of 10 headers read, 2.5 MB`; `received()` counts bytes."""
    return lambda count, total, _: (
        f"{count:,} of {total:,} headers read, {received() / 1e6:,.1f} MB"
        if count
        else "waiting for the Hub"
    )


def numbers_read(count: int, total: int, seconds: float) -> str:
    """Format `0.5 of 1.2 GB of numbers read, 2.1 GB/s` from byte counts."""
    speed = count / seconds / 1e9
    return f"{count / 1e9:,.1f} of {total / 1e9:,.1f} GB of numbers read, {speed:.1f} GB/s"
