"""What an answer says of the rate limit: read within bounds, because any server can say anything.

The Hub sends `RateLimit: "api";r=12;t=55` (12 requests left, the window ends in 55 seconds) and
`RateLimit-Policy: "fixed window";"api";q=500;w=300` (500 requests in windows of 300 seconds).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

# Seconds. The Hub counts in windows of five minutes, https://huggingface.co/docs/hub/rate-limits:
# no server makes us wait for longer than that without being asked again.
WINDOW = 300

_MOST_CHARACTERS = 256  # of a header; the Hub's have 22 and 40
_MOST_REQUESTS = 10**9  # ten thousand times what the Hub's largest plan allows in a window
_MOST_SECONDS = 10**9  # 30 years

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
