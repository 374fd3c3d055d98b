"""The evidence that a cause examines, and the change that it proposes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor
from auditor.bounded.json_text import parse_or_empty
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.name_kinds import NameKind, chosen_of, kinds_of, name_pattern
from auditor.diagnosis.solving.forms import NameForms
from auditor.diagnosis.solving.holdings import HeldTensors, held
from auditor.diagnosis.solving.outline import leaves
from auditor.diagnosis.solving.trials import ClassTree
from auditor.errors import CheckpointError
from auditor.findings import (
    Finding,
    MatchedPair,
    Mismatched,
    Missing,
    Severity,
    is_of_repository,
)
from auditor.findings import Unexpected as UnexpectedFinding
from auditor.findings.evidence import OfFile
from auditor.report import Report, Unaudited
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...]]  # by name, of the tensors that a config implies
_Kind = TypeVar("_Kind")
_LARGE = 2000  # tensors


class Undoing(Struct, frozen=True, kw_only=True):
    """A change of one side that would make findings go away, and what that would mean.

    Where nothing can be put in the place of what is broken (a pointer instead of a config), the
    snapshot is as it was, and `proven` are the findings that a file's very bytes explain.
    """

    cause: str  # of the closed list
    snapshot: Snapshot  # with the change
    proven: tuple[Finding, ...] = ()  # then nothing is audited again
    target: str | None = None  # another class to audit for
    renames: Mapping[str, str] = field(default_factory=dict)  # stored names, before and after
    fields: tuple[tuple[str, Any, Any], ...] = ()  # (key, declared, what the files hold)
    undetermined: tuple[tuple[str, Any], ...] = ()  # (key, declared); no shape gives its value
    summary: str  # what is wrong, with numbers; `engine` adds how much it explains
    fix: str
    evidence: tuple[str, ...] = ()
    exact: bool = False  # it counts only where nothing at all is left to say
    certain: bool = True  # whether names and shapes leave no other reading; else nothing is written

    def on(self, snapshot: Snapshot) -> "Undoing":
        """Return the undoing on a changed snapshot, without the findings that it proved."""
        return replace(self, snapshot=snapshot, proven=())


class Case(Struct, frozen=True, kw_only=True, dict=True):
    """One model with alarming findings: of files alone, where nothing could be compared."""

    snapshot: Snapshot
    report: Report | Unaudited
    target: str | None  # the class that the user asked for; None: the declared one
    classes: Callable[[str], tuple[str, ...]]  # of a model type
    implied: Callable[[Snapshot], Shapes | None]  # by the config alone; None: nothing follows
    tree: Callable[..., ClassTree | None]  # the closed form's, of a snapshot's config
    forms: Callable[..., NameForms]  # of the names that its config implies

    def once(self, key: str, make: Callable[[], _Kind]) -> _Kind:
        """Return what `make` returns, which is computed once for a case."""
        known: dict[str, Any] = vars(self).setdefault("_once", {})
        if key not in known:
            known[key] = make()
        found: _Kind = known[key]
        return found

    @cached_property
    def alarms(self) -> tuple[Finding, ...]:
        """But for those about a repository, which no change of names or sizes closes."""
        return tuple(
            one
            for one in self.report.findings
            if one.severity is not Severity.INFO and not is_of_repository(one)
        )

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Names of expected tensors that no file stores, in the form that stored ones have."""
        names = self._named_by(Missing)
        return tuple(map(self._forms.in_memory, names)) if self._forms else names

    @cached_property
    def near(self) -> frozenset[str]:
        """Missing names, with and without their first part, which loading may add or remove."""
        return self.missing_names.union(name.partition(".")[2] for name in self.missing)

    @cached_property
    def missing_names(self) -> frozenset[str]:
        """The missing names, to look in."""
        return frozenset(self.missing)

    @cached_property
    def missing_kinds(self) -> tuple[NameKind, ...]:
        """The missing names by kind."""
        return kinds_of(self.missing)

    @cached_property
    def unexpected_kinds(self) -> tuple[NameKind, ...]:
        """The unexpected names by kind."""
        names = frozenset(self.unexpected)
        if names <= self.shapes.keys():
            return chosen_of(self.stored_kinds, names)
        return kinds_of(self.unexpected)  # an index names some that no file here has

    @cached_property
    def stored_kinds(self) -> tuple[NameKind, ...]:
        """The stored names by kind."""
        return kinds_of(self.shapes)

    @cached_property
    def unexpected(self) -> tuple[str, ...]:
        """Names of stored tensors that nothing expects."""
        return self._named_by(UnexpectedFinding)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The unexpected names that no class of the family has, whatever their shapes."""
        found = self._of(UnexpectedFinding)
        return tuple(name for one in found if not one.known_to for name in one.names)

    def _of(self, kind: type[_Kind]) -> Iterator[_Kind]:
        return (one for one in self.report.findings if isinstance(one, kind))

    def _named_by(self, kind: type[Finding]) -> tuple[str, ...]:
        return tuple(name for one in self._of(kind) for name in one.names)

    @cached_property
    def lacking(self) -> tuple[ExpectedTensor, ...]:
        """Expected tensors that no file stores, in the form that stored ones have."""
        tensors = tuple(tensor for one in self._of(Missing) for tensor in one.tensors)
        if self._forms is None:
            return tensors
        return tuple(one._replace(name=self._forms.in_memory(one.name)) for one in tensors)

    @cached_property
    def _both_forms(self) -> NameForms:
        return self.forms(self.snapshot)

    @cached_property
    def _forms(self) -> NameForms | None:
        """The forms of names if the files have the names in memory; None as nearly always."""
        found = self._both_forms
        return found if found.differ and found.are_in_memory(self.stored_kinds) else None

    def on_disk(self, name: str) -> str:
        """The name that save_pretrained would have written."""
        name = self._both_forms.of_today(name)
        return self._forms.on_disk(name) if self._forms else name

    def patterns_on_disk(self, pattern: str) -> tuple[str, ...]:
        """The patterns of the names that save_pretrained writes for a name of this pattern."""
        return self._both_forms.patterns_on_disk(self.on_disk(pattern))

    def is_stack(self, name: str) -> bool:
        """Whether save_pretrained writes several tensors where this one is in memory."""
        pattern = name_pattern(name)
        return self.patterns_on_disk(pattern) != (self.on_disk(pattern),)

    @cached_property
    def base_prefix(self) -> str | None:
        """The base model's prefix, which loading adds or removes; None if it is unknown."""
        with suppress(CheckpointError):
            expected = self.tree(self.snapshot)
            return None if expected is None else expected.prefix
        return None

    @cached_property
    def strange(self) -> tuple[StoredTensor, ...]:
        """Stored tensors that nothing expects; all that are stored, where not all are named."""
        if self.unnamed:
            return self.stored
        return tuple(tensor for one in self._of(UnexpectedFinding) for tensor in one.tensors)

    @cached_property
    def strange_named(self) -> Mapping[str, StoredTensor]:
        """The strange tensors by name."""
        return {tensor.name: tensor for tensor in self.strange}

    @cached_property
    def lacking_named(self) -> Mapping[str, ExpectedTensor]:
        """The lacking tensors by name."""
        return {tensor.name: tensor for tensor in self.lacking}

    @cached_property
    def strange_kinds(self) -> tuple[NameKind, ...]:
        """The names of the strange tensors by kind."""
        return self.stored_kinds if self.unnamed else self.unexpected_kinds

    @cached_property
    def unnamed(self) -> bool:
        """Whether there are unexpected tensors that are counted and not named."""
        return any(one.more for one in self._of(UnexpectedFinding))

    @cached_property
    def mismatched(self) -> tuple[MatchedPair, ...]:
        return tuple(pair for one in self._of(Mismatched) for pair in one.pairs)

    @cached_property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The tensors of all files whose headers could be read."""
        tables = (head.parsed for head in self.snapshot.headers)
        good = (table for table in tables if not isinstance(table, CheckpointError))
        return tuple(tensor for table in good for tensor in table.tensors)

    @cached_property
    def size(self) -> int:
        """Tensors of the larger side, which is what auditing it again takes time by."""
        expected = self.report.expected.tensors if self.report.expected else 0
        observed = self.report.observed.tensors if self.report.observed else 0
        named = sum(one.count for one in self.report.findings)
        return max(1, len(self.stored), expected, observed, named)

    @cached_property
    def hidden(self) -> Mapping[str, tuple[ExpectedTensor, ...]]:
        """By file that could not be read, or by the index: the expected tensors behind it."""
        return {one.file: one.hidden for one in self._of(OfFile)}

    @cached_property
    def implied_shapes(self) -> Shapes:
        """The shapes that must be stored by the config; empty if nothing follows from it."""
        return self.implied(self.snapshot) or {}

    @property
    def is_large(self) -> bool:
        """Whether auditing it again takes so long that there are few tries."""
        return self.size > _LARGE

    @cached_property
    def is_strange(self) -> bool:
        """Whether most names of a large model are of another model.

        No value of a field, and no class of the same type, makes those expected. Layers or experts
        that the config does not count are not strange: others of the same kind are expected.
        """
        found = [one for one in self.alarms if isinstance(one, UnexpectedFinding)]
        observed = self.report.observed.tensors if self.report.observed else 0
        if not self.is_large or 2 * sum(one.count for one in found) <= observed:
            return False
        kinds = self._implied_patterns()
        strange = sum(
            len(kind.names) for kind in self.unexpected_kinds if kind.pattern not in kinds
        )
        return 2 * strange > len(self.unexpected)

    def _implied_patterns(self) -> set[str]:
        """The patterns of the names that the config implies."""
        with suppress(CheckpointError):
            if expected := self.tree(self.snapshot):
                return {name_pattern(leaf.name) for leaf in leaves(expected.tree)}
        return {kind.pattern for kind in kinds_of(self.implied_shapes)}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...] | None]:
        """The shapes of the stored tensors, by name."""
        return {tensor.name: tensor.shape for tensor in self.stored}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config's values; an empty dict if it is absent or cannot be read."""
        config = self.snapshot.config
        return parse_or_empty(config.content, config.name) if config else {}

    @cached_property
    def holdings(self) -> HeldTensors:
        """The tensors inside the stored ones; names alone where only an index has them.

        Their names are those on disk, as a tree has them.
        """
        snapshot = self.snapshot
        files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
        if self.stored or snapshot.index is None:
            found = self._both_forms.separated(
                held(self.stored, self.stored_kinds, self.config, files)
            )
            return found.renamed(self.on_disk)
        try:
            names = snapshot.index.as_index.weight_map
        except CheckpointError:
            return HeldTensors({})
        return HeldTensors(dict.fromkeys(names)).renamed(self.on_disk)


AlarmKey = tuple[str, str]  # the kind of a finding, and one of its names
UNCHANGED: Mapping[str, str] = MappingProxyType({})


def alarm_keys(finding: Finding, renames: Mapping[str, str] = UNCHANGED) -> Iterator[AlarmKey]:
    """A key for each name, as it is after the change; one for a model as a whole."""
    for name in finding.names or ("",):
        yield finding.kind, renames.get(name, name)


def composed(first: Mapping[str, str], then: Mapping[str, str]) -> Mapping[str, str]:
    """Renames of the original names, by one change and another one after it."""
    return {**then, **{name: then.get(other, other) for name, other in first.items()}}
