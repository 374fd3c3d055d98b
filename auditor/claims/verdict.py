"""What became of a claim: confirmed, or refuted with explanations that add up."""

from dataclasses import dataclass
from typing import Any, Literal

Judgement = Literal["confirmed", "confirmed to its rounding", "refuted", "nothing to compare with"]


@dataclass(frozen=True, kw_only=True)
class Slip:
    """One thing that was counted wrongly, and what it adds to the count."""

    slip: str  # of a closed list: part-left-out, one-of-n, no-bias, ...
    difference: int
    fields: tuple[tuple[str, Any], ...] = ()  # module, n, into, class, key, value, dtype


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Slips whose differences add up to the claim minus the true count."""

    slips: tuple[Slip, ...]
    total: int  # what they make of the true count: the claim


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """The count that exists and is nearest to a claim that nothing explains."""

    module: str  # a module, or a class
    count: int
    difference: int  # the claim minus this count


@dataclass(frozen=True, kw_only=True)
class Verdict:
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
