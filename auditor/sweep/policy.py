"""Policy: how much a sweep may take of the Hub and of this machine, and for how long."""

from typing import Annotated

from msgspec import Meta, Struct

from auditor.errors import Reason
from auditor.sweep.settings_file import Count

# Worth another attempt the next night: the fault was the network's, the Hub's, or our own, or the
# model's licence may have been accepted since.
PASSING = frozenset(
    {
        Reason.OFFLINE,
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.RATE_LIMITED,
        Reason.SERVER_ERROR,
        Reason.BAD_RESPONSE,
        Reason.COMMIT_MOVED,
        Reason.DENIED,
        Reason.GATED,
        Reason.NOT_FOUND,
        Reason.NO_REVISION,
        Reason.UNREADABLE,
        Reason.TOO_LITTLE_MEMORY,
        Reason.CRASHED,
    }
)


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a sweep, and what it alarms of."""

    # More than one are the workers of a Dask cluster on this machine.
    processes: Count = 1

    # The most models under way in each process. The Hub's largest plan allows 166 models a second,
    # which at 0.15 s for each of two answers are 50 under way; at three times the distance, 150.
    at_once: Count = 160

    # Shards under way in each process, of all its models.
    shards: Count = 16

    # Requests in five minutes, beside what the Hub's RateLimit headers allow; None: those alone.
    max_requests: Count | None = None

    # Seconds of network for one model; waiting for the budget does not count. DeepSeek-V3's 163
    # shards take 20 s at 8 requests a second, which is what a free token has.
    deadline: Annotated[float, Meta(gt=0)] = 120.0

    # Bytes of one model. The headers of DeepSeek-V3, the longest known, have 11 MB.
    max_bytes: Count = 64 * 1024 * 1024

    # Read what stands beside the weights, too: up to three requests a model more.
    companions: bool = False

    # The least severity that alarms; None: the command line says.
    fail_on: Annotated[str, Meta(pattern="^(error|warning|never)$")] | None = None

    @property
    def hopeless(self) -> float:
        """Seconds without any outcome after which what is under way is given up.

        An oracle's answer takes 120 s at most, and one at a time is asked.
        """
        return 5 * self.deadline
