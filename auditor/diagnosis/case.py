"""What a cause looks at, and what it proposes: a change that would undo it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.bounded_json import parse_object
from auditor.containers.index import parse_index
from auditor.diagnosis.solving.holdings import HeldTensors, held
from auditor.diagnosis.solving.trials import ClassTree
from auditor.errors import CheckpointError
from auditor.reconciler.findings import (
    Finding,
    MatchedPair,
    Mismatched,
    Missing,
    Severity,
    count_of,
)
from auditor.reconciler.findings import Unexpected as UnexpectedFinding
from auditor.report import Report
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...]]  # by name, of the tensors that a config implies


@dataclass(frozen=True, kw_only=True)
class Undoing:
    """A change of one side that would make findings go away, and what that would mean."""

    cause: str  # of the closed list
    snapshot: Snapshot  # with the change
    target: str | None = None  # another class to audit for
    renames: Mapping[str, str] = field(default_factory=dict)  # stored names, before and after
    fields: tuple[tuple[str, Any, Any], ...] = ()  # (key, declared, what the files hold)
    summary: str  # what is wrong, with numbers; `engine` adds how much it explains
    fix: str
    evidence: tuple[str, ...] = ()
    exact: bool = False  # it counts only where nothing at all is left to say


@dataclass(frozen=True, kw_only=True)
class Case:
    """One audited model with alarming findings."""

    snapshot: Snapshot
    report: Report
    target: str | None  # the class that the user asked for; None: the declared one
    classes: Callable[[str], tuple[str, ...]]  # of a model type
    implied: Callable[[Snapshot], Shapes | None]  # by the config alone; None: nothing follows
    tree: Callable[..., ClassTree | None]  # the closed form's, of a snapshot's config

    @cached_property
    def alarms(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.report.findings if one.severity is not Severity.INFO)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Names of expected tensors that no file stores."""
        return self._named_by(Missing)

    @cached_property
    def unexpected(self) -> tuple[str, ...]:
        """Names of stored tensors that nothing expects."""
        return self._named_by(UnexpectedFinding)

    def _named_by(self, kind: type[Finding]) -> tuple[str, ...]:
        found = (one for one in self.report.findings if isinstance(one, kind))
        return tuple(name for one in found for name in one.names)

    @cached_property
    def mismatched(self) -> tuple[MatchedPair, ...]:
        found = (one for one in self.report.findings if isinstance(one, Mismatched))
        return tuple(pair for one in found for pair in one.pairs)

    @cached_property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The tensors of all files whose headers could be read."""
        tables = (head.parsed for head in self.snapshot.headers)
        good = (table for table in tables if not isinstance(table, CheckpointError))
        return tuple(tensor for table in good for tensor in table.tensors)

    @property
    def size(self) -> int:
        """Tensors of the larger side, which is what auditing it again takes time by."""
        expected = self.report.expected.tensors if self.report.expected else 0
        observed = self.report.observed.tensors if self.report.observed else 0
        named = sum(map(count_of, self.report.findings))
        return max(1, len(self.stored), expected, observed, named)

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...] | None]:
        """Of what is stored, by name."""
        return {tensor.name: tensor.shape for tensor in self.stored}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config's values; nothing where it has none that can be read."""
        if self.snapshot.config is None:
            return {}
        try:
            return parse_object(self.snapshot.config.content, self.snapshot.config.name)
        except CheckpointError:
            return {}

    @cached_property
    def holdings(self) -> HeldTensors:
        """The tensors inside the stored ones; names alone where only an index has them."""
        snapshot = self.snapshot
        files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
        if self.stored or snapshot.index is None:
            return held(self.stored, self.config, files)
        try:
            index = parse_index(snapshot.index.name, snapshot.index.content)
        except CheckpointError:
            return HeldTensors({})
        return HeldTensors(dict.fromkeys(index.weight_map))
