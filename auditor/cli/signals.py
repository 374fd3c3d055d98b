"""Signals that end a run: the first signal raises Stopped, so that the run cleans up and ends."""

import os
import signal
import time
from types import FrameType

# Signals of Ctrl-C, of a service manager and of a closed terminal. Windows has no SIGHUP.
_ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_INSISTS = 1.0  # seconds; a second Ctrl-C within this time may be an echo of the first


class Stopped(BaseException):
    """A signal that ends the program; it is not an error to handle."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        """The conventional exit code: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self.number


def heed() -> None:
    """Make the first ending signal raise Stopped; signals that are ignored stay ignored."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a job in the background
            signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> None:
    since = time.monotonic()

    def again(another: int, _: FrameType | None) -> None:
        if another == signal.SIGINT and time.monotonic() - since > _INSISTS:
            os._exit(128 + another)

    for ending in _ENDING:
        if signal.getsignal(ending) is _stop:
            signal.signal(ending, again)
    raise Stopped(number)
