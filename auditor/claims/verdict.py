"""The verdict on a claim or a published count: confirmed, or refuted with the reason."""

from typing import Any, Literal

from msgspec import Struct


class PublishedCount(Struct, frozen=True, kw_only=True):
    """A published number and the verdict on it."""

    where: Literal["name", "hub", "card"]
    key: str  # the repository's name, or the key with the number
    text: str
    claim: int
    verdict: Literal["confirmed", "confirmed to its rounding", "refuted"]
    actual: int
    reason: str = ""  # of a refuted number
    usual: bool = False  # whether the Hub's way to count refutes it for all such files


Judgement = Literal["confirmed", "confirmed to its rounding", "refuted", "nothing to compare with"]


class Slip(Struct, frozen=True, kw_only=True):
    """A mistake in a count, and its difference to the count."""

    slip: str  # of a closed list: part-left-out, one-of-n, no-bias, ...
    difference: int
    fields: tuple[tuple[str, Any], ...] = ()  # module, n, into, class, key, value, dtype


class Explanation(Struct, frozen=True, kw_only=True):
    """Slips whose differences add up to the claim minus the true count."""

    slips: tuple[Slip, ...]
    total: int  # the count with all slips: the claim


class Nearest(Struct, frozen=True, kw_only=True):
    """The existing count that is nearest to a claim without an explanation."""

    module: str  # a module, or a class
    count: int
    difference: int  # the claim minus this count


class Verdict(Struct, frozen=True, kw_only=True):
    """A claim and the verdict on it."""

    text: str  # as written
    claim: int | None  # None if it is not a number
    part: str  # "" is the whole model
    verdict: Judgement
    actual: int | None  # in the claim's unit
    unit: Literal["parameters", "bytes"] = "parameters"
    reading: str = ""  # the reading of the part, if it has several
    explanations: tuple[Explanation, ...] = ()
    nearest: Nearest | None = None
    note: str = ""
