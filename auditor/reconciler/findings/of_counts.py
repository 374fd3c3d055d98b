"""The kinds of findings that are about a number of parameters that somebody published."""

from typing import ClassVar

from msgspec import Struct

from auditor.reconciler.findings.evidence import NoParameters, Severity


class OfCount(NoParameters, Struct, frozen=True, kw_only=True):
    """About a published number: where it stands, how it is written, and what is true."""

    where: str  # a key of the Hub's answer, or the repository's name
    text: str
    claim: int
    actual: int
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.where,)


class HubCount(OfCount, frozen=True):
    """The Hub states a number of parameters that these files do not have; programs select by it.

    It is neither the parameters nor the stored elements: of another upload, or edited.

    To do: Upload the weights again, which makes the Hub count anew.
    """

    kind: ClassVar = "hub-count"
    severity: ClassVar = Severity.WARNING


class ClaimedSize(OfCount, frozen=True):
    """A published size is not the model's: its name's, its card's, the Hub's count of packed words.

    The Hub counts stored elements: of weights that GPTQ or AWQ packed, eight parameters are one.

    To do: Correct the name or the card (`audit claim` says what the number would be right for); of
    packed weights, give the true number in the card.
    """

    kind: ClassVar = "claimed-size"
    severity: ClassVar = Severity.INFO
