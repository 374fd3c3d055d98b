"""How a signal ends a run: the first one at once and in order, whatever is waited for."""

import os
import signal
import time
from types import FrameType

# Sent by a terminal, a service manager and a hang-up; Windows has no hang-up.
_ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_INSISTS = 1.0  # seconds after which a second Ctrl-C is a person's, and not the first one's echo


class Stopped(BaseException):
    """A signal has asked the program to end; not an error to be handled."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        """The exit code by convention: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self.number


def heed() -> None:
    """Have the signals that end a program raise Stopped, once; those that are ignored stay so."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a job in the background
            signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> None:
    since = time.monotonic()

    def again(another: int, _: FrameType | None) -> None:
        if another == signal.SIGINT and time.monotonic() - since > _INSISTS:
            os._exit(128 + another)

    for each in _ENDING:
        if signal.getsignal(each) is _stop:
            signal.signal(each, again)
    raise Stopped(number)
