"""How often and how long an audit waits for a server that is busy, broken or gone quiet."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from threading import Event
from typing import NamedTuple, TypeVar

from auditor.downloader.hub_settings import patience
from auditor.downloader.waits import STOPPED, Talk, Wait
from auditor.errors import Reason, SourceError

T = TypeVar("T")

ATTEMPTS = 5
FIRST_WAIT = 0.2  # seconds; then 0.4, 0.8, 1.6: three seconds in all, while someone is watching

# Seconds that one request may spend on attempts without an answer, while someone is watching. They
# cut the second one short (10 s and 4, by default), so that an audit ends within 25 s: what was
# asked for beside the listing had 10 before.
MOST_SILENCE = 14.0
_TIME_OUTS = 1.4  # times HF_HUB_DOWNLOAD_TIMEOUT, if that is longer
_TOO_SHORT = 0.1  # of all these seconds: no attempt is made for less

_TOO_MANY = 429
_MOST_SECONDS = 10**9  # 30 years, which is as good as for ever
_LONGEST_DATE = 64  # characters; an HTTP date has 29


class PassingError(SourceError):
    """A fault that may be gone at the next attempt."""

    silence = 0.0  # seconds for which there was no answer

    def __init__(self, reason: Reason, message: str, wait: float | None = None) -> None:
        super().__init__(reason, message)
        self.wait = wait  # seconds that the server asked for


class Patience:
    """Tries again after passing faults, for all threads of one audit.

    A wait that a server asked for lies within `held`; `silence` is how long a request may go
    unanswered in all. Once it is `over` nothing is waited for, and what is tried after that fails.
    """

    def __init__(
        self,
        talk: Talk,
        held: Callable[[float], AbstractContextManager[object]] = nullcontext,
        *,
        silence: float | None = None,
        over: Event | None = None,
    ) -> None:
        self._held = held
        self._silence = silence or max(MOST_SILENCE, _TIME_OUTS * patience())
        self._over = over or Event()
        self._waits = talk.waits

    def end(self) -> None:
        """Ends every wait; what is tried after that fails at once."""
        self._over.set()

    def call(self, attempt: Callable[[float], T]) -> T:
        """The result of the first attempt that has one; at most five are made.

        Each gets the seconds for which it may go unanswered.
        """
        tried, waited, silence = 0, 0.0, self._silence
        while not self._over.is_set():
            try:
                return attempt(silence)
            except PassingError as fault:
                tried += 1
                silence -= fault.silence
                if silence < _TOO_SHORT * self._silence:
                    raise _given_up(fault, tried) from fault
                wait = next_wait(fault, tried, waited)
                waited += wait
                with nullcontext() if fault.wait is None else self._held(wait):
                    self._waits.rest_through(Wait(str(fault), wait), self._over)
        raise SourceError(Reason.UNREACHABLE, STOPPED)


def next_wait(fault: PassingError, tried: int, waited: float) -> float:
    """The seconds until the next attempt; raises SourceError if no attempt is left.

    What the server asks for, else twice as long as the last time; a little more than that, so that
    those who wait together do not come back together. No longer in all than a window.
    """
    import random  # noqa: PLC0415 - 2 ms, only where a wait is needed

    if tried >= ATTEMPTS:
        raise _given_up(fault, tried) from fault
    asked = FIRST_WAIT * 2 ** (tried - 1) if fault.wait is None else fault.wait
    wait = asked + random.uniform(0, FIRST_WAIT)  # noqa: S311 - no secret
    if waited + wait > WINDOW + 1:  # the second is for what is added
        after = f" after {waited:.0f} s" if waited else ""
        detail = f"{fault}: another {asked:.0f} s{after} is too long to wait"
        raise SourceError(fault.reason, detail) from fault
    return wait


def _given_up(fault: PassingError, tried: int) -> SourceError:
    times = "once" if tried == 1 else f"{tried} times"
    return SourceError(fault.reason, f"{fault} (tried {times})")


def asked_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """The seconds that a refusal asks to wait: Retry-After, else the end of the rate window."""
    after = headers.get("retry-after", "").strip()
    if after.isascii() and after.isdecimal():
        return min(float(after), float(_MOST_SECONDS))
    if (until := _date(after)) is not None:
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    limit = rate_limit(headers)
    spent = limit is not None and limit.remaining == 0
    return float(limit.reset) if limit and spent and status == _TOO_MANY else None


def _date(text: str) -> datetime | None:
    """An HTTP date; None: the text is not a date."""
    if not text or len(text) > _LONGEST_DATE:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 10 ms, for few refusals

    try:
        found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


# --- what an answer says of the rate limit --------------------------------------------------------


# Seconds. The Hub counts in windows of five minutes, https://huggingface.co/docs/hub/rate-limits:
# no server makes us wait for longer than that without being asked again.
WINDOW = 300

_MOST_CHARACTERS = 256  # of a header; the Hub's have 22 and 40
_MOST_REQUESTS = 10**9  # ten thousand times what the Hub's largest plan allows in a window

_LIMIT = re.compile(
    r'(?:"(\w{1,32})"\s*;|(?:^|,))\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)(?!\w)', re.ASCII
)
_QUOTA = re.compile(r";\s*q\s*=\s*(\d+)(?!\w)", re.ASCII)


class RateLimit(NamedTuple):
    """One window of requests, as the headers of an answer describe it."""

    kind: str | None  # of requests: api, resolvers, pages; None: the answer names none
    remaining: int  # requests
    reset: int  # seconds until the window ends, as the answer says
    quota: int | None  # requests of a whole window; None: the answer does not say

    @property
    def ask_again(self) -> int:
        """Seconds after which the answer is not believed any more, at most WINDOW."""
        return min(self.reset, WINDOW)


def rate_limit(headers: Mapping[str, str]) -> RateLimit | None:
    """The window that an answer is of; None: it says nothing of one, as a mirror's do not."""
    found = _LIMIT.search(_header(headers, "ratelimit"))
    if found is None:
        return None
    quota = _QUOTA.search(_header(headers, "ratelimit-policy"))
    return RateLimit(
        kind=found[1],
        remaining=min(int(found[2]), _MOST_REQUESTS),
        reset=min(int(found[3]), _MOST_SECONDS),
        quota=min(int(quota[1]), _MOST_REQUESTS) if quota else None,
    )


def _header(headers: Mapping[str, str], wanted: str) -> str:
    """The value of a header, whatever the case of its name; nothing of one that is too long."""
    value = next((value for name, value in headers.items() if name.lower() == wanted), "")
    return value if len(value) <= _MOST_CHARACTERS else ""
