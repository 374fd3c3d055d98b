"""What became of a claim, or of a published count: confirmed, or refuted; and why."""

from typing import Any, Literal

from msgspec import Struct


class PublishedCount(Struct, frozen=True, kw_only=True):
    """A number that stands beside a model, and what became of it."""

    where: Literal["name", "hub", "card"]
    key: str  # the repository's name, or the key that says it
    text: str
    claim: int
    verdict: Literal["confirmed", "confirmed to its rounding", "refuted"]
    actual: int
    reason: str = ""  # of one that is refuted
    usual: bool = False  # refuted, as the Hub's own way of counting is for all such files


Judgement = Literal["confirmed", "confirmed to its rounding", "refuted", "nothing to compare with"]


class Slip(Struct, frozen=True, kw_only=True):
    """One thing that was counted wrongly, and what it adds to the count."""

    slip: str  # of a closed list: part-left-out, one-of-n, no-bias, ...
    difference: int
    fields: tuple[tuple[str, Any], ...] = ()  # module, n, into, class, key, value, dtype


class Explanation(Struct, frozen=True, kw_only=True):
    """Slips whose differences add up to the claim minus the true count."""

    slips: tuple[Slip, ...]
    total: int  # what they make of the true count: the claim


class Nearest(Struct, frozen=True, kw_only=True):
    """The count that exists and is nearest to a claim that nothing explains."""

    module: str  # a module, or a class
    count: int
    difference: int  # the claim minus this count


class Verdict(Struct, frozen=True, kw_only=True):
    """A claim and what it is worth."""

    text: str  # as it was written
    claim: int | None  # None: it is not a number
    part: str  # "" is the whole model
    verdict: Judgement
    actual: int | None  # in the claim's unit
    unit: Literal["parameters", "bytes"] = "parameters"
    reading: str = ""  # what the part was taken for, where it may be several things
    explanations: tuple[Explanation, ...] = ()
    nearest: Nearest | None = None
    note: str = ""
