"""Rate limits as the Hub counts them: requests in fixed windows, API and resolvers apart."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .wire import Headers


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Requests a window; the defaults are the Hub's largest plan, so that few tests meet them."""

    api: int = 10_000
    resolvers: int = 100_000
    window: int = 300  # seconds


class Meter:
    """Counts requests against a quota; thread-safe."""

    def __init__(self, quota: Quota, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self.start_over(quota)

    def start_over(self, quota: Quota) -> None:
        """Open a new window now, under this quota."""
        with self._lock:
            self._quota = quota
            self._spent = {"api": 0, "resolvers": 0}
            self._opened = self._clock()

    def spend(self, kind: str) -> tuple[bool, Headers]:
        """Count one request: whether it was within the quota, and the headers that say so."""
        with self._lock:
            age = self._clock() - self._opened
            if age >= self._quota.window:
                self._opened += age - age % self._quota.window
                self._spent = dict.fromkeys(self._spent, 0)
                age %= self._quota.window
            limit = self._quota.api if kind == "api" else self._quota.resolvers
            self._spent[kind] += 1
            left = limit - self._spent[kind]
            reset = max(1, round(self._quota.window - age))
            return left >= 0, rate_headers(kind, max(0, left), reset, limit, self._quota.window)


def rate_headers(kind: str, left: int, reset: int, limit: int, window: int) -> Headers:
    return (
        ("RateLimit", f'"{kind}";r={left};t={reset}'),
        ("RateLimit-Policy", f'"fixed window";"{kind}";q={limit};w={window}'),
    )
