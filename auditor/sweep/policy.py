"""The policy of a sweep: its limits on requests, bytes, time and processes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from auditor.errors import Reason
from auditor.sweep.settings_file import Count, Workers

# Reasons that may be temporary, so the model is tried again the next night: errors of the network,
# of the Hub or of this program, and gated models, whose licence may have been accepted since.
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
    """The limits of a sweep, and the severity at which it fails."""

    # Processes that audit; if more than one, they are Dask workers on this machine.
    processes: Workers = 1

    # The largest number of models under way in each process. The Hub's largest plan allows 166
    # models a second: 50 are under way if two answers take 0.15 s each, 150 if they take 0.45 s.
    at_once: Workers = 160

    # Shards under way in each process, over all models.
    shards: Workers = 16

    # Limit on requests in five minutes; if None, only the Hub's RateLimit headers limit them.
    max_requests: Count | None = None

    # Seconds of network for one model; waiting for the budget does not count. DeepSeek-V3's 163
    # shards take 20 s at 8 requests a second, the rate of a free token.
    deadline: Annotated[float, Meta(gt=0, le=1_000_000)] = 120.0

    # Bytes to read of one model. The longest known headers, of DeepSeek-V3, have 11 MB.
    max_bytes: Count = 64 * 1024 * 1024

    # Whether to read companion files, too: up to three more requests for each model.
    companions: bool = False

    # Serving engines whose verdict on each model is stored, too.
    engines: tuple[Literal["vllm", "mlx", "llama.cpp"], ...] = ()

    # The lowest severity at which the sweep fails; None: the command line's default.
    fail_on: Annotated[str, Meta(pattern="^(error|warning|never)$")] | None = None

    @property
    def hopeless(self) -> float:
        """The seconds without any outcome after which the models under way are abandoned.

        It is long because the oracle takes up to 120 s for each model, one model at a time.
        """
        return 5 * self.deadline
