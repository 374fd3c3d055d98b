"""A count that was published beside a model, as a report has it."""

from typing import Literal

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
