"""Retries of requests to a server that is busy, broken or silent: their number and their waits."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from threading import Event
from typing import NamedTuple, TypeVar

from auditor.downloader.hub_settings import time_out
from auditor.downloader.waits import STOPPED, ProgressLines, Wait
from auditor.errors import Reason, SourceError

T = TypeVar("T")

ATTEMPTS = 5
FIRST_WAIT = 0.2  # seconds; then 0.4, 0.8, 1.6: three seconds in all, in an interactive audit

# Seconds that one request may spend on attempts without an answer, in an interactive audit: by
# default 10 for the first attempt and 4 for the second. With the 10 of the early reads, which are
# sent together with the listing's request, an audit ends within 25 s.
MOST_SILENCE = 14.0
_TIME_OUTS = 1.4  # MOST_SILENCE as a multiple of HF_HUB_DOWNLOAD_TIMEOUT, if that is longer
_TOO_SHORT = 0.1  # least share of these seconds for an attempt

_TOO_MANY = 429
_MOST_SECONDS = 10**9  # 30 years
_LONGEST_DATE = 64  # characters; an HTTP date has 29


class PassingError(SourceError):
    """A temporary error: the next attempt may succeed."""

    silence = 0.0  # seconds without an answer

    def __init__(self, reason: Reason, message: str, wait: float | None = None) -> None:
        super().__init__(reason, message)
        self.wait = wait  # seconds that the server requested


class RetryPolicy:
    """Calls a function again after each PassingError, in any thread of one audit.

    A wait that a server requested happens inside the context `during_wait`. `silence` is the total
    time that a request may stay unanswered. Once `over` is set, waits end and attempts fail.
    """

    def __init__(
        self,
        lines: ProgressLines,
        during_wait: Callable[[float], AbstractContextManager[object]] = nullcontext,
        *,
        silence: float | None = None,
        over: Event | None = None,
    ) -> None:
        self._during_wait = during_wait
        self._silence = silence or max(MOST_SILENCE, _TIME_OUTS * time_out())
        self._over = over or Event()
        self._waits = lines.waits

    def end(self) -> None:
        self._over.set()

    def call(self, attempt: Callable[[float], T]) -> T:
        """Return the result of the first successful attempt, of at most five.

        Each attempt gets the seconds for which it may stay unanswered.
        """
        count, waited, silence = 0, 0.0, self._silence
        while not self._over.is_set():
            try:
                return attempt(silence)
            except PassingError as fault:
                count += 1
                silence -= fault.silence
                if silence < _TOO_SHORT * self._silence:
                    raise _last_error(fault, count) from fault
                wait = next_wait(fault, count, waited)
                waited += wait
                with nullcontext() if fault.wait is None else self._during_wait(wait):
                    self._waits.rest_through(Wait(str(fault), wait), self._over)
        raise SourceError(Reason.UNREACHABLE, STOPPED)


def next_wait(fault: PassingError, count: int, waited: float) -> float:
    """Return the seconds until the next attempt; raise SourceError if no attempt is left.

    The wait is the one that the server requests, else twice the last wait, plus a random part,
    so that clients do not all return at once. All waits together fit into one rate window.
    """
    import random  # noqa: PLC0415 - 2 ms, only where a wait is needed

    if count >= ATTEMPTS:
        raise _last_error(fault, count) from fault
    seconds = FIRST_WAIT * 2 ** (count - 1) if fault.wait is None else fault.wait
    wait = seconds + random.uniform(0, FIRST_WAIT)  # noqa: S311 - no secret
    if waited + wait > WINDOW + 1:  # a second more for the random part
        after = f" after {waited:.0f} s" if waited else ""
        detail = f"{fault}: another {seconds:.0f} s{after} is too long to wait"
        raise SourceError(fault.reason, detail) from fault
    return wait


def _last_error(fault: PassingError, count: int) -> SourceError:
    times = "once" if count == 1 else f"{count} times"
    return SourceError(fault.reason, f"{fault} (tried {times})")


def requested_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by the headers of a refusal; None if they do not state a wait.

    Retry-After takes precedence over the end of the rate window.
    """
    after = headers.get("retry-after", "").strip()
    if after.isascii() and after.isdecimal():
        return min(float(after), float(_MOST_SECONDS))
    if (until := _date(after)) is not None:
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    limit = rate_limit(headers)
    is_spent = limit is not None and limit.remaining == 0
    return float(limit.reset) if limit and is_spent and status == _TOO_MANY else None


def _date(text: str) -> datetime | None:
    """Parse an HTTP date; return None if the text is not a date."""
    if not text or len(text) > _LONGEST_DATE:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 10 ms, for few refusals

    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


# --- the rate limit in an answer's headers --------------------------------------------------------


# Seconds. The Hub counts in windows of five minutes, https://huggingface.co/docs/hub/rate-limits:
# after that long a server is asked again, whatever it requested.
WINDOW = 300

_MOST_CHARACTERS = 256  # the longest header that is parsed; the Hub's have 22 and 40
_MOST_REQUESTS = 10**9  # ten thousand times the quota of the Hub's largest plan

_LIMIT = re.compile(
    r'(?:"(\w{1,32})"\s*;|(?:^|,))\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)(?!\w)', re.ASCII
)
_QUOTA = re.compile(r";\s*q\s*=\s*(\d+)(?!\w)", re.ASCII)


class RateLimit(NamedTuple):
    """The rate-limit window that the headers of an answer describe."""

    kind: str | None  # kind of requests: api, resolvers, pages; None if the answer names none
    remaining: int  # requests
    reset: int  # seconds until the window ends, according to the answer
    quota: int | None  # requests of a whole window; None if the answer does not have it

    @property
    def ask_again(self) -> int:
        """The seconds after which these values are outdated, at most WINDOW."""
        return min(self.reset, WINDOW)


def rate_limit(headers: Mapping[str, str]) -> RateLimit | None:
    """Return the rate-limit window in an answer's headers; None if absent, as from a mirror."""
    limit = _LIMIT.search(_header(headers, "ratelimit"))
    if limit is None:
        return None
    quota = _QUOTA.search(_header(headers, "ratelimit-policy"))
    return RateLimit(
        kind=limit[1],
        remaining=min(int(limit[2]), _MOST_REQUESTS),
        reset=min(int(limit[3]), _MOST_SECONDS),
        quota=min(int(quota[1]), _MOST_REQUESTS) if quota else None,
    )


def _header(headers: Mapping[str, str], lower_name: str) -> str:
    """Return the value of a header; "" if the header is absent or too long."""
    value = next((value for name, value in headers.items() if name.lower() == lower_name), "")
    return value if len(value) <= _MOST_CHARACTERS else ""
