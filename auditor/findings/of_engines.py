"""The kind of finding about a serving engine, which only `--for` asks for."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from auditor.findings.evidence import FindingKind, NoParameters, Severity


class EngineRefuses(NoParameters, FindingKind, frozen=True, kw_only=True):
    """An engine that was asked for with `--for` does not load the checkpoint.

    To do: Change what the reason names: `audit fix --for ENGINE` lists config keys that would help,
    and packed weights can be unpacked. Otherwise serve the checkpoint with another engine.
    """

    engine: str
    version: str

    kind: ClassVar = "engine-refuses"
    severity: ClassVar = Severity.ERROR

    @property
    def names(self) -> tuple[str, ...]:
        return (self.engine,)

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"engine": self.engine, "version": self.version}

    def only(self, matches: Callable[[str], bool]) -> Self:
        del matches  # there is one name, and it matched
        return self
