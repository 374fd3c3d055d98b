"""Messages for the time of a wait: its reason, the seconds left, the progress of a read."""

import time
from collections.abc import Callable
from threading import Event, Lock, get_ident
from typing import NamedTuple

from auditor.errors import Reason, SourceError

LONG = 2.0  # seconds; a shorter wait is not shown
STEP = 1.0  # seconds between two looks at a wait
_EVERY = 60.0  # seconds between two lines of one wait
STOPPED = "stopped, because another request has failed"
_SAME = 3.0  # seconds by which the ends of two waits may differ that are shown as one


class Wait(NamedTuple):
    """What is waited for, and for how long yet."""

    why: str
    seconds: float

    @property
    def shown(self) -> str:
        return f"{self.why}; waiting {self.seconds:.0f} s"


# Called with a wait again and again, and with None when it is over.
Show = Callable[[Wait | None], None]


class InLines:
    """Shows waits where lines stay, as in a log: one at the start of each, then one a minute."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._why: str | None = None  # of the wait that was shown last
        self._until = self._said = 0.0  # when that ends, and when it was shown

    def __call__(self, wait: Wait | None) -> None:
        if wait is None:
            self._why = None
            return
        now = self._clock()
        until = now + wait.seconds
        same = wait.why == self._why and abs(until - self._until) < _SAME
        if not same or now - self._said >= _EVERY:
            self._why, self._until, self._said = wait.why, until, now
            self._say(wait.shown)


class Waits:
    """The long waits of several threads, of which the one is shown that ends last."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._lock = Lock()
        self._waits: dict[object, Wait] = {}
        self.longest: Wait | None = None  # the one that is shown

    def tell(self, who: object, wait: Wait | None) -> None:
        """How long `who` waits yet; None: no more. A wait that was long is shown to its end."""
        with self._lock:
            known = who in self._waits
            if wait is not None and (known or wait.seconds > LONG):
                self._waits[who] = wait
            elif known:
                del self._waits[who]
            else:
                return
            self.longest = max(self._waits.values(), key=lambda one: one.seconds, default=None)
            self._show(self.longest)

    def rest(self, wait: Wait | None, step: float, over: Event) -> None:
        """Sleep for a step of a wait; None: it has ended. Raises SourceError once it is `over`."""
        self.tell(get_ident(), wait)
        if wait and over.wait(step):
            self.tell(get_ident(), None)
            raise SourceError(Reason.UNREACHABLE, STOPPED)

    def rest_through(self, wait: Wait, over: Event) -> None:
        """Sleep to the end of a wait, a step at a time."""
        until = time.monotonic() + wait.seconds
        while (left := until - time.monotonic()) > 0:
            self.rest(wait._replace(seconds=left), min(left, STEP), over)
        self.rest(None, 0.0, over)


class Talk:
    """Receives the messages of an audit that goes on, in lines; waits among them.

    Called from several threads. Where a line can be written over, waits are shown otherwise, and
    `progress` too, which is called with a line again and again, and with None at its end. A wait
    says more, and is shown in its place.
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
    def of(cls, say: Callable[[str], None]) -> "Talk":
        """As it is, where it is one; a function that takes lines becomes one."""
        return say if isinstance(say, Talk) else cls(say)


# --- progress -------------------------------------------------------------------------------------


_SOON = 1.0  # seconds that are not worth a word
_STEP = 0.1  # seconds between two words


class ReadingProgress:
    """Shows a line at most ten times a second, once something takes more than a second."""

    def __init__(
        self,
        show: Callable[[str | None], None],
        line: Callable[[int, int, float], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`show` gets a line, or None at the end; `line` makes it of (done, of, seconds)."""
        self._show = show
        self._line = line
        self._clock = clock
        self._since = clock()
        self._told = self._since + _SOON - _STEP

    def __call__(self, done: int, of: int) -> None:
        now = self._clock()
        if done == of:
            self._show(None)
        elif now - self._told >= _STEP:
            self._told, seconds = now, now - self._since
            left = f"; {seconds / done * (of - done):.0f} s left" if done else ""
            self._show(self._line(done, of, seconds) + left)


def headers_read(received: Callable[[], int]) -> Callable[[int, int, float], str]:
    """`5 of 10 headers read, 2.5 MB`, where `received` counts bytes; before: who is asked."""
    return lambda done, of, _: (
        f"{done:,} of {of:,} headers read, {received() / 1e6:,.1f} MB"
        if done
        else "waiting for the Hub"
    )


def numbers_read(done: int, of: int, seconds: float) -> str:
    """`0.5 of 1.2 GB of numbers read, 2.1 GB/s`, of numbers of bytes."""
    speed = done / seconds / 1e9
    return f"{done / 1e9:,.1f} of {of / 1e9:,.1f} GB of numbers read, {speed:.1f} GB/s"
