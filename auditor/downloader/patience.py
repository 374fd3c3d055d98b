"""How often and how long an audit waits for a server that is busy, broken or gone quiet."""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Never, TypeVar

from auditor.downloader.rate_limits import rate_limit
from auditor.errors import Reason, SourceError

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

ATTEMPTS = 5
FIRST_WAIT = 0.2  # seconds; then 0.4, 0.8, 1.6: three seconds in all, while someone is watching
WINDOW = 300.0  # seconds; the Hub counts requests in windows of five minutes
_TOO_MANY = 429
_WORTH_SAYING = 1.0  # seconds of waiting that a person would wonder about


class PassingError(SourceError):
    """A fault that may be gone at the next attempt; `wait` is what the server asked for."""

    def __init__(self, reason: Reason, message: str, wait: float | None = None) -> None:
        super().__init__(reason, message)
        self.wait = wait


class Patience:
    """Tries again after passing faults, for all threads of one audit."""

    def __init__(
        self, say: Callable[[str], None], held: Callable[[float], None] = lambda _seconds: None
    ) -> None:
        """`say` hears of long waits in a line each, `held` of what a server asked to wait."""
        self._say = say
        self._held = held
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def end(self) -> None:
        """Ends every wait; what is tried after that fails at once."""
        self._over.set()

    def call(self, attempt: Callable[[], T]) -> T:
        """The result of the first attempt that has one; at most five are made."""
        try:
            return self._unless_over(attempt)
        except PassingError as fault:
            return self._again(attempt, fault)

    def _again(self, attempt: Callable[[], T], first: PassingError) -> T:
        """As `call`, after the first attempt; so the usual audit does not import what it needs."""
        import tenacity  # noqa: PLC0415 - 8 ms

        jitter = tenacity.wait_random(0, FIRST_WAIT)
        backoff = tenacity.wait_exponential(multiplier=FIRST_WAIT) + jitter
        failed = [first]

        def wait(state: "RetryCallState") -> float:
            asked = _fault(state).wait
            return backoff(state) if asked is None else asked + jitter(state)

        def attempted() -> T:
            if failed:
                raise failed.pop()
            return self._unless_over(attempt)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(PassingError),
            wait=wait,
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            sleep=tenacity.sleep_using_event(self._over),
            before_sleep=self._before_sleep,
            retry_error_callback=_give_up,
        )
        result: T = retrying(attempted)
        return result

    def _unless_over(self, attempt: Callable[[], T]) -> T:
        if self._over.is_set():
            raise SourceError(Reason.UNREACHABLE, "stopped, because another request has failed")
        return attempt()

    def _before_sleep(self, state: "RetryCallState") -> None:
        wait, fault = state.upcoming_sleep, _fault(state)
        # idle_for counts this wait already; the second is for what jitter may add.
        if state.idle_for > WINDOW + 1:
            raise SourceError(fault.reason, f"{fault}: {_seconds(wait)} is too long to wait")
        if fault.wait is not None:
            self._held(wait)
        message = f"{fault}; waiting {_seconds(wait)}"
        with self._lock:
            if wait >= _WORTH_SAYING and message not in self._said:
                self._said.add(message)
                self._say(message)


def asked_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """The seconds that a refusal asks to wait: Retry-After, else the end of the rate window."""
    after = headers.get("retry-after", "").strip()
    if after.isdecimal():
        return float(after[:9])
    try:
        until = parsedate_to_datetime(after)
    except (TypeError, ValueError):
        pass
    else:
        zoned = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (zoned - datetime.now(UTC)).total_seconds())
    limit = rate_limit(headers)
    spent = limit is not None and limit.remaining == 0
    return float(limit.reset) if limit and spent and status == _TOO_MANY else None


def _fault(state: "RetryCallState") -> PassingError:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, PassingError):
        raise TypeError(f"only a PassingError is tried again, not {error!r}")
    return error


def _give_up(state: "RetryCallState") -> Never:
    fault = _fault(state)
    raise SourceError(fault.reason, f"{fault} (tried {state.attempt_number} times)") from fault


def _seconds(wait: float) -> str:
    return f"{wait:.0f} s"
