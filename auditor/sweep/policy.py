"""Policy: how much a sweep may take of the Hub and of this machine, and for how long."""

import os
from dataclasses import dataclass, field

from auditor.errors import Reason

# Worth another attempt the next night: the fault was the network's, the Hub's, or our own.
PASSING = frozenset(
    (
        Reason.OFFLINE,
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.RATE_LIMITED,
        Reason.SERVER_ERROR,
        Reason.BAD_RESPONSE,
        Reason.COMMIT_MOVED,
        Reason.DENIED,
        Reason.NOT_FOUND,
        Reason.NO_REVISION,
        Reason.UNREADABLE,
        Reason.CRASHED,
    )
)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The bounds of a sweep."""

    processes: int = field(default_factory=_cores)

    # Models under way in each process. The Hub answers in 50 to 200 ms, three times a model: 16
    # keep a core half busy, and more gain nothing at the rate that the Hub's plans allow. Where
    # answers come at once fewer do better, which are less in each other's way: 4 by a tenth.
    at_once: int = 16

    # Shards under way in each process, of all its models.
    shards: int = 16

    # Requests in five minutes, beside what the Hub's RateLimit headers allow; None: those alone.
    max_requests: int | None = None

    # Seconds of network for one model; waiting for the budget does not count. DeepSeek-V3's 163
    # shards take 20 s at 8 requests a second, which is what a free token has.
    deadline: float = 120.0

    # Bytes of one model. The headers of DeepSeek-V3, the longest known, have 11 MB.
    max_bytes: int = 64 * 1024 * 1024

    @property
    def hopeless(self) -> float:
        """Seconds after which the process that audits a model is ended, whatever it is doing.

        An oracle's answer takes 120 s at most, and one at a time is asked.
        """
        return 5 * self.deadline
