"""The input of a cause, `Case`, and its output: an `Undoing`, a change that would undo it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.bounded_json import parse_object
from auditor.diagnosis.name_kinds import NameKind, chosen_of, kinds_of, name_pattern
from auditor.diagnosis.solving.forms import NameForms
from auditor.diagnosis.solving.holdings import HeldTensors, held
from auditor.diagnosis.solving.outline import leaves
from auditor.diagnosis.solving.trials import ClassTree
from auditor.errors import CheckpointError
from auditor.reconciler.findings import (
    Finding,
    MatchedPair,
    Mismatched,
    Missing,
    Severity,
    is_of_repository,
)
from auditor.reconciler.findings import Unexpected as UnexpectedFinding
from auditor.reconciler.findings.evidence import OfFile
from auditor.report import Report, Unaudited
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...]]  # by name, of the tensors that a config implies
_Kind = TypeVar("_Kind")
_LARGE = 2000  # tensors


class Undoing(Struct, frozen=True, kw_only=True):
    """A change of the files or the config that would close findings, and its explanation.

    If nothing can replace the broken file (a pointer instead of a config), the snapshot is
    unchanged, and `proven` lists the findings that the bytes of the file explain.
    """

    cause: str  # one of the closed list of causes
    snapshot: Snapshot  # with the change
    proven: tuple[Finding, ...] = ()  # if any, the snapshot is not audited again
    target: str | None = None  # another class to audit the snapshot for
    renames: Mapping[str, str] = field(default_factory=dict)  # new stored name by old stored name
    fields: tuple[
        tuple[str, Any, Any], ...
    ] = ()  # (key, declared value, value that fits the files)
    undetermined: tuple[
        tuple[str, Any], ...
    ] = ()  # (key, declared value); shapes do not determine these
    summary: str  # what is wrong, with numbers; `engine` adds how many names it explains
    fix: str
    evidence: tuple[str, ...] = ()
    exact: bool = False  # accept it only if it closes every alarming finding

    def on(self, snapshot: Snapshot) -> "Undoing":
        """Return a copy that is tested by auditing `snapshot`, instead of by `proven` findings."""
        return replace(self, snapshot=snapshot, proven=())


class Case(Struct, frozen=True, kw_only=True, dict=True):
    """One model with alarming findings; only findings about files if nothing could be compared."""

    snapshot: Snapshot
    report: Report | Unaudited
    target: str | None  # the class that the user chose; None means the declared one
    classes: Callable[[str], tuple[str, ...]]  # class names by model type
    implied: Callable[
        [Snapshot], Shapes | None
    ]  # from the config alone; None if it implies nothing
    tree: Callable[..., ClassTree | None]  # of the closed form, for a snapshot's config
    forms: Callable[[Snapshot], NameForms]  # of the names that a snapshot's config implies

    def once(self, key: str, make: Callable[[], _Kind]) -> _Kind:
        """Return `make()`, computed once per case and key."""
        cache: dict[str, Any] = vars(self).setdefault("_once", {})
        if key not in cache:
            cache[key] = make()
        value: _Kind = cache[key]
        return value

    @cached_property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings above INFO, except those about a repository: no undoing closes these."""
        return tuple(
            finding
            for finding in self.report.findings
            if finding.severity is not Severity.INFO and not is_of_repository(finding)
        )

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The names of expected tensors that no file stores, in the form of the stored names."""
        names = self._named_by(Missing)
        return tuple(map(self._forms.in_memory, names)) if self._forms else names

    @cached_property
    def near(self) -> frozenset[str]:
        """The missing names, with and without their first part: loading may add or remove it."""
        return self.missing_names.union(name.partition(".")[2] for name in self.missing)

    @cached_property
    def missing_names(self) -> frozenset[str]:
        """The missing names as a set."""
        return frozenset(self.missing)

    @cached_property
    def missing_kinds(self) -> tuple[NameKind, ...]:
        """The missing names, by kind."""
        return kinds_of(self.missing)

    @cached_property
    def unexpected_kinds(self) -> tuple[NameKind, ...]:
        """The unexpected names, by kind."""
        names = frozenset(self.unexpected)
        if names <= self.shapes.keys():
            return chosen_of(self.stored_kinds, names)
        return kinds_of(self.unexpected)  # an index may list names that no file stores

    @cached_property
    def stored_kinds(self) -> tuple[NameKind, ...]:
        """The stored names, by kind."""
        return kinds_of(self.shapes)

    @cached_property
    def unexpected(self) -> tuple[str, ...]:
        """The names of stored tensors that the class does not expect."""
        return self._named_by(UnexpectedFinding)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The unexpected names that no class of the family has, with any shape."""
        findings = self._of(UnexpectedFinding)
        return tuple(name for one in findings if not one.known_to for name in one.names)

    def _of(self, kind: type[_Kind]) -> Iterator[_Kind]:
        return (one for one in self.report.findings if isinstance(one, kind))

    def _named_by(self, kind: type[Finding]) -> tuple[str, ...]:
        return tuple(name for one in self._of(kind) for name in one.names)

    @cached_property
    def lacking(self) -> tuple[ExpectedTensor, ...]:
        """The expected tensors that no file stores, with names in the form of the stored names."""
        tensors = tuple(tensor for one in self._of(Missing) for tensor in one.tensors)
        if self._forms is None:
            return tensors
        return tuple(one._replace(name=self._forms.in_memory(one.name)) for one in tensors)

    @cached_property
    def _both_forms(self) -> NameForms:
        return self.forms(self.snapshot)

    @cached_property
    def _forms(self) -> NameForms | None:
        """The name forms if files store the names in memory; None if they store those on disk."""
        forms = self._both_forms
        return forms if forms.differ and forms.are_in_memory(self.stored_kinds) else None

    def on_disk(self, name: str) -> str:
        """The name that save_pretrained writes for this tensor."""
        name = self._both_forms.of_today(name)
        return self._forms.on_disk(name) if self._forms else name

    def patterns_on_disk(self, pattern: str) -> tuple[str, ...]:
        """The patterns of the names that save_pretrained writes for a name of this pattern."""
        return self._both_forms.patterns_on_disk(self.on_disk(pattern))

    def is_stack(self, name: str) -> bool:
        """Whether save_pretrained splits this tensor into several."""
        pattern = name_pattern(name)
        return self.patterns_on_disk(pattern) != (self.on_disk(pattern),)

    @cached_property
    def strange(self) -> tuple[StoredTensor, ...]:
        """The stored tensors that are not expected; all stored ones if a finding omits names."""
        if self.unnamed:
            return self.stored
        return tuple(tensor for one in self._of(UnexpectedFinding) for tensor in one.tensors)

    @cached_property
    def strange_named(self) -> Mapping[str, StoredTensor]:
        """The strange tensors, by name."""
        return {tensor.name: tensor for tensor in self.strange}

    @cached_property
    def lacking_named(self) -> Mapping[str, ExpectedTensor]:
        """The lacking tensors, by name."""
        return {tensor.name: tensor for tensor in self.lacking}

    @cached_property
    def strange_kinds(self) -> tuple[NameKind, ...]:
        """The names of the strange tensors, by kind."""
        return self.stored_kinds if self.unnamed else self.unexpected_kinds

    @cached_property
    def unnamed(self) -> bool:
        """Whether a finding counts unexpected tensors without naming all of them."""
        return any(one.more for one in self._of(UnexpectedFinding))

    @cached_property
    def mismatched(self) -> tuple[MatchedPair, ...]:
        return tuple(pair for one in self._of(Mismatched) for pair in one.pairs)

    @cached_property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The tensors of all files with a readable header."""
        tables = (head.parsed for head in self.snapshot.headers)
        readable = (table for table in tables if not isinstance(table, CheckpointError))
        return tuple(tensor for table in readable for tensor in table.tensors)

    @cached_property
    def size(self) -> int:
        """The number of tensors of the larger side; the time of an audit grows with it."""
        expected = self.report.expected.tensors if self.report.expected else 0
        observed = self.report.observed.tensors if self.report.observed else 0
        named = sum(one.count for one in self.report.findings)
        return max(1, len(self.stored), expected, observed, named)

    @cached_property
    def hidden(self) -> Mapping[str, tuple[ExpectedTensor, ...]]:
        """The expected tensors in each unreadable file or index, by file name."""
        return {one.file: one.hidden for one in self._of(OfFile)}

    @cached_property
    def implied_shapes(self) -> Shapes:
        """The shapes that the config requires, by name; empty if the config implies nothing."""
        return self.implied(self.snapshot) or {}

    @property
    def is_large(self) -> bool:
        """Whether an audit takes so long that causes should propose few undoings."""
        return self.size > _LARGE

    @cached_property
    def is_strange(self) -> bool:
        """Whether most names of a large model belong to another model.

        No value of a field, and no class of the same type, makes such names expected. Layers or
        experts beyond the declared count are not strange: others of their kind are expected.
        """
        findings = [one for one in self.alarms if isinstance(one, UnexpectedFinding)]
        observed = self.report.observed.tensors if self.report.observed else 0
        if not self.is_large or 2 * sum(one.count for one in found) <= observed:
            return False
        implied = self._implied_patterns()
        strange = sum(
            len(kind.names) for kind in self.unexpected_kinds if kind.pattern not in implied
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
        """The values of the config; empty if there is no readable config."""
        if self.snapshot.config is None:
            return {}
        try:
            return parse_object(self.snapshot.config.content, self.snapshot.config.name)
        except CheckpointError:
            return {}

    @cached_property
    def holdings(self) -> HeldTensors:
        """The unpacked stored tensors; names without shapes if there is only an index.

        The names are those on disk, as in a tree.
        """
        snapshot = self.snapshot
        files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
        if self.stored or snapshot.index is None:
            tensors = held(self.stored, self.stored_kinds, self.config, files)
            return self._both_forms.separated(tensors).renamed(self.on_disk)
        try:
            names = snapshot.index.as_index.weight_map
        except CheckpointError:
            return HeldTensors({})
        return HeldTensors(dict.fromkeys(names)).renamed(self.on_disk)


AlarmKey = tuple[str, str]  # the kind of a finding, and one of its names
UNCHANGED: Mapping[str, str] = MappingProxyType({})


def alarm_keys(finding: Finding, renames: Mapping[str, str] = UNCHANGED) -> Iterator[AlarmKey]:
    """Yield a key for each name after renaming; one key if the finding names no tensor."""
    for name in finding.names or ("",):
        yield finding.kind, renames.get(name, name)


def composed(first: Mapping[str, str], then: Mapping[str, str]) -> Mapping[str, str]:
    """Return the renames that apply `first` and then `then`."""
    return {**then, **{name: then.get(other, other) for name, other in first.items()}}
