"""The kinds of findings that are about a number of parameters that somebody published."""

from dataclasses import dataclass
from typing import ClassVar

from auditor.reconciler.findings.evidence import Severity


@dataclass(frozen=True, kw_only=True)
class OfCount:
    """About a published number: where it stands, how it is written, and what is true."""

    where: str  # a key of the Hub's answer, or the repository's name
    text: str
    claim: int
    actual: int
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.where,)

    @property
    def parameters(self) -> int:
        return 0

    @property
    def explains(self) -> int:
        return 0


class HubCount(OfCount):
    """The Hub states a number of parameters that the model does not have; programs select by it.

    The Hub counts stored elements: of weights that GPTQ or AWQ packed, eight parameters are one.

    To do: Give the true number in the model card; `--ignore hub-count` if that is known.
    """

    kind: ClassVar = "hub-count"
    severity: ClassVar = Severity.WARNING


class ClaimedSize(OfCount):
    """The repository's name or its model card gives a size that no part of the model comes near.

    To do: Ask `audit claim` what the number would be right for, and correct the name or the card.
    """

    kind: ClassVar = "claimed-size"
    severity: ClassVar = Severity.INFO
