"""The cost of a sweep: requests, hours on each plan of the Hub, bytes, CPU time, disk. Pure."""

from collections.abc import Iterator

from msgspec import Struct

from auditor.companions.companion_files import OF_HUB
from auditor.downloader.headers import FIRST_READ
from auditor.downloader.retry import WINDOW
from auditor.sweep.workers.budget import spared


class Quota(Struct, frozen=True, kw_only=True):
    """The requests that one plan of the Hub allows in five minutes."""

    plan: str
    api: int  # requests
    resolvers: int  # requests


# The Hub's documentation of its rate limits, https://huggingface.co/docs/hub/rate-limits
RATES_OF = "September 2025"
QUOTAS = (
    Quota(plan="anonymous, by IP", api=500, resolvers=3_000),
    Quota(plan="free", api=1_000, resolvers=5_000),
    Quota(plan="PRO", api=2_500, resolvers=12_000),
    Quota(plan="Team", api=3_000, resolvers=20_000),
    Quota(plan="Enterprise", api=6_000, resolvers=50_000),
    Quota(plan="Enterprise Plus", api=10_000, resolvers=100_000),
)

# Bytes of a list entry (a model of twenty files), of a text file (the mean of 54 real
# config.json), and of a header (the first read of a weight file, and the redirect to it).
_ENTRY, _TEXT, _HEADER = 1_000, 1_500, FIRST_READ + 1_000

# Bytes in the store for each model after its first night: ALIKE for 50 fine-tunes of each of 19
# usual model types (ALBERT to Whisper), UNLIKE for ten models of each type, all of different sizes.
# NIGHT is added by each further night. Measured with `PYTHONPATH=tests` by tools/measure_store.py.
ALIKE, UNLIKE, NIGHT = 1_980, 11_700, 121

# Seconds of one core for a model whose headers no other model has: 7 s for 2,000 models
# (docs/speed.md), more on a slower machine.
_PROCESSOR = 0.005

_HOUR = 3600.0


class CompanionLoad(Struct, frozen=True, kw_only=True):
    """The additional requests of a sweep that also reads companion files (tokenizer and others)."""

    models: int = 0  # models that have companion files
    listing: int = 0  # API requests for file sizes, which the list of models lacks
    reads: int = 0  # resolver requests

    def __add__(self, other: "CompanionLoad") -> "CompanionLoad":
        return CompanionLoad(
            models=self.models + other.models,
            listing=self.listing + other.listing,
            reads=self.reads + other.reads,
        )


class SweepLoad(Struct, frozen=True, kw_only=True):
    """The estimated work of a sweep: numbers of models, requests and files."""

    models: int  # selected models
    known: int = 0  # models whose outcome is in the store: nothing to do
    stored: int = 0  # models whose headers are in the store: audited anew without requests
    listing: int = 0  # API requests: pages of lists, and single models
    texts: int = 0  # configs and indexes to read, one resolver request each
    headers: int = 0  # weight files to open, one resolver request each
    companions: CompanionLoad = CompanionLoad()
    notes: tuple[str, ...] = ()  # how the load was estimated

    def __add__(self, other: "SweepLoad") -> "SweepLoad":
        fields = self.__struct_fields__
        return SweepLoad(**{name: getattr(self, name) + getattr(other, name) for name in fields})

    @property
    def resolvers(self) -> int:
        """The number of file requests (/resolve/ addresses), without companion files."""
        return self.texts + self.headers

    @property
    def fetched(self) -> int:
        """The number of models with files to read."""
        return self.models - self.known - self.stored


def hours_of_requests(api: int, resolvers: int, quota: Quota) -> float:
    """Return the hours that API requests and then file requests take at the quota's rates."""
    windows = api / (quota.api - spared(quota.api))
    windows += resolvers / (quota.resolvers - spared(quota.resolvers))
    return windows * WINDOW / _HOUR


def cost_estimate(load: SweepLoad, most: int | None = None, *, companions: bool = False) -> str:
    """Return the estimated cost of a sweep as text.

    `most` is --max-requests; `companions` is whether the sweep reads companion files.
    """
    rates = f"Rate limits as of {RATES_OF}; up to a twentieth of each is left to others."
    notes = (rates, *dict.fromkeys(load.notes))
    companion_load = load.companions if companions else CompanionLoad()
    api = load.listing + companion_load.listing
    resolvers = load.resolvers + companion_load.reads
    unchanged = load.listing
    table = _table(api, resolvers, unchanged, most)
    sums = _sums(load, api, resolvers, companions=companions)
    return "\n".join((*sums, "", *table, "", *notes, ""))


def _sums(load: SweepLoad, api: int, resolvers: int, *, companions: bool) -> Iterator[str]:
    known_part = f", {load.known:,} of them known" if load.known else ""
    stored_part = f", {load.stored:,} with stored headers" if load.stored else ""
    yield f"models      {load.models:,}{known_part}{stored_part}; {load.fetched:,} to fetch"
    yield f"requests    {api:,} API, {resolvers:,} resolver (files)"
    received = load.models * _ENTRY + load.texts * _TEXT + load.headers * _HEADER
    yield f"bytes       {_size(received)} from the Hub"
    yield from _companions(load.companions, companions=companions)
    seconds = (load.fetched + load.stored) * _PROCESSOR
    yield f"processor   {_hours(seconds / _HOUR)} hours of one core"
    stored_bytes = (load.models - load.fetched) * NIGHT
    alike, unlike = (_size(load.fetched * each + stored_bytes) for each in (ALIKE, UNLIKE))
    yield f"disk        {alike} if all are fine-tunes, {unlike} if none are alike"
    yield f"            {_size(load.models * NIGHT)} a further night"


def _companions(load: CompanionLoad, *, companions: bool) -> Iterator[str]:
    requests = f"{load.listing:,} API, {load.reads:,} resolver"
    size = _size(load.models * OF_HUB.bytes)
    if companions:
        yield f"companions  read: {requests} of these requests"
        yield f"            and at most {size} more"
    else:
        yield "companions  not read; `companions = true` in a sweep.toml would add"
        yield f"            {requests} and at most {size}"


def _table(api: int, resolvers: int, unchanged: int, most: int | None) -> Iterator[str]:
    yield f"{'':<18}{'requests in 5 minutes':>25}{'hours':>28}"
    yield f"{'plan':<18}{'API':>12}{'resolver':>13}{'this sweep':>14}{'no changes':>14}"
    nights = ((api, resolvers), (unchanged, 0))  # this night, and a night without changes
    for quota in QUOTAS:
        this_night, later = (_hours(hours_of_requests(*night, quota)) for night in nights)
        allowed = f"{quota.api:>12,}{quota.resolvers:>13,}"
        yield f"{quota.plan:<18}{allowed}{this_night:>14}{later:>14}"
    if most is not None:
        this_night, later = (_hours(sum(night) / most * WINDOW / _HOUR) for night in nights)
        yield f"{'--max-requests':<18}{most:>12,}{'':>13}{this_night:>14}{later:>14}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.05 or not hours else "< 0.1"  # noqa: PLR2004 - rounding


def _size(size: float) -> str:
    for unit, width in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= width:
            return f"{size / width:,.1f} {unit}"
    return f"{size:,.0f} bytes"
