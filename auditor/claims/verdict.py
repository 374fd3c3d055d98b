"""The records of a verdict on a claim or a published count."""

from typing import Any, Literal

from msgspec import Struct


class PublishedCount(Struct, frozen=True, kw_only=True):
    """A count in the name, the Hub's metadata or the card of a model, and the verdict on it."""

    where: Literal["name", "hub", "card"]
    key: str  # the repository's name, or the key with the number
    text: str
    claim: int
    verdict: Literal["confirmed", "confirmed to its rounding", "refuted"]
    actual: int
    reason: str = ""  # why the number is refuted
    usual: bool = False  # whether the Hub's count is wrong for all such (packed) files


Judgement = Literal["confirmed", "confirmed to its rounding", "refuted", "nothing to compare with"]


class Slip(Struct, frozen=True, kw_only=True):
    """A mistake in a count, and the change that it makes to the count."""

    slip: str  # of a closed list: part-left-out, one-of-n, no-bias, ...
    difference: int
    fields: tuple[tuple[str, Any], ...] = ()  # module, n, into, class, key, value, dtype


class Explanation(Struct, frozen=True, kw_only=True):
    """Slips whose differences add up to the claim minus the true count."""

    slips: tuple[Slip, ...]
    total: int  # the count with all slips: the claim


class Nearest(Struct, frozen=True, kw_only=True):
    """The true count of a module or class that is nearest to an unexplained claim."""

    module: str  # a module, or a class
    count: int
    difference: int  # the claim minus this count


class Verdict(Struct, frozen=True, kw_only=True):
    """A claim of a user and the verdict on it."""

    text: str  # as written
    claim: int | None  # None if it is not a number
    part: str  # "" is the whole model
    verdict: Judgement
    actual: int | None  # in the claim's unit
    unit: Literal["parameters", "bytes"] = "parameters"
    reading: str = ""  # how the part's name was understood, if there are several ways
    explanations: tuple[Explanation, ...] = ()
    nearest: Nearest | None = None
    note: str = ""
