"""The evidence that a cause examines, and the change of the snapshot that it proposes.

Two pairs of properties of `Case` name the same tensors: `unexpected` are the names of the tensors
`strange`, and `missing` the names of the tensors `lacking`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, field

from auditor.analytic import ExpectedTensor
from auditor.analytic.name_forms import NameForms
from auditor.analytic.outline import ClassTree, leaves
from auditor.checkpoint.snapshot import Snapshot
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
from auditor.name_kinds import NameKind, chosen_of, kinds_of, name_pattern
from auditor.reconciler.by_kind.held_tensors import HeldTensors, held
from auditor.report import Report, Unaudited
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...]]  # tensor name -> shape, as a config implies them
_Kind = TypeVar("_Kind")
_LARGE = 2000  # tensors; auditing more of them takes long


class Undoing(Struct, frozen=True, kw_only=True):
    """A change of the config or the files that removes findings, and the cause that it reverses.

    If a broken file has no replacement (a Git LFS pointer instead of a config), the snapshot is
    unchanged, and `proven` are the findings that the bytes of the file explain.
    """

    cause: str  # its name, such as `fused-names`
    snapshot: Snapshot  # the changed snapshot
    proven: tuple[Finding, ...] = ()  # findings explained without another audit
    target: str | None = None  # another class to audit for
    renames: Mapping[str, str] = field(default_factory=dict)  # stored name -> new name
    fields: tuple[tuple[str, Any, Any], ...] = ()  # (key, declared value, value in the files)
    undetermined: tuple[tuple[str, Any], ...] = ()  # (key, declared); no shape determines its value
    values: Mapping[str, Any] = field(default_factory=dict)  # solved values, by dotted path
    alternatives: tuple[Mapping[str, Any], ...] = ()  # values of which the files fit each
    summary: str  # the fault, with numbers; `engine` adds how many findings it explains
    fix: str
    instead: str = ""  # the remedy if its values show the config of another model
    evidence: tuple[str, ...] = ()
    either: str = ""  # the change in a few words, if others of its cause may be as good
    # How the summary begins, and the fix, if others are as good.
    undecided: tuple[str, str] = ("", "")
    refused: str = ""  # why its values must not be written, and `fix` says so; "" if they may
    exact: bool = False  # valid only if no alarm remains after the change
    certain: bool = True  # whether a fix may be written; not if another undoing is as good


class Case(Struct, frozen=True, kw_only=True, dict=True):
    """The evidence about one model: its snapshot, its report and functions that read its class.

    The findings concern only the files if the tensors could not be compared.
    """

    snapshot: Snapshot
    report: Report | Unaudited
    target: str | None  # the class that the user asked for; None for the declared class
    classes: Callable[[str], tuple[str, ...]]  # model type -> the names of its classes
    implied: Callable[[Snapshot], Shapes | None]  # shapes that the config implies, or None
    tree: Callable[..., ClassTree | None]  # tree of the snapshot's class; None without a form
    forms: Callable[..., NameForms]  # name forms (on disk, in memory) of the config's tensors

    @cached_property
    def alarms(self) -> tuple[Finding, ...]:
        """The alarming findings, except those about companion files and repeated config values.

        No change of names or sizes removes such excepted findings.
        """
        return tuple(
            one
            for one in self.report.findings
            if one.severity is not Severity.INFO and not is_of_repository(one)
        )

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The names of expected tensors that no file stores, in the form of the stored names."""
        names = self._named_by(Missing)
        return tuple(map(self._forms.in_memory, names)) if self._forms else names

    @cached_property
    def missing_kinds(self) -> tuple[NameKind, ...]:
        """The missing names, grouped into names that differ only in their numbers."""
        return kinds_of(self.missing)

    @cached_property
    def unexpected_kinds(self) -> tuple[NameKind, ...]:
        """The unexpected names, grouped into names that differ only in their numbers."""
        names = frozenset(self.unexpected)
        if names <= self.shapes.keys():
            return chosen_of(self.stored_kinds, names)
        return kinds_of(self.unexpected)  # the index lists names whose files are absent

    @cached_property
    def stored_kinds(self) -> tuple[NameKind, ...]:
        """The stored names, grouped into names that differ only in their numbers."""
        return kinds_of(self.shapes)

    @cached_property
    def unexpected(self) -> tuple[str, ...]:
        """The names of stored tensors that the class does not expect."""
        return self._named_by(UnexpectedFinding)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The unexpected names that no class of the family has, and that loading reports."""
        found = (one for one in self._of(UnexpectedFinding) if not (one.known_to or one.silent))
        return tuple(name for one in found for name in one.names)

    def _of(self, kind: type[_Kind]) -> Iterator[_Kind]:
        return (one for one in self.report.findings if isinstance(one, kind))

    def count_of(self, kind: type[Finding]) -> int:
        """Return the number of names in the findings of a kind."""
        return sum(one.count for one in self._of(kind))

    def _named_by(self, kind: type[Finding]) -> tuple[str, ...]:
        return tuple(name for one in self._of(kind) for name in one.names)

    @cached_property
    def lacking(self) -> tuple[ExpectedTensor, ...]:
        """The expected tensors that no file stores, named in the form of the stored names."""
        tensors = tuple(tensor for one in self._of(Missing) for tensor in one.tensors)
        if self._forms is None:
            return tensors
        return tuple(one._replace(name=self._forms.in_memory(one.name)) for one in tensors)

    @cached_property
    def _both_forms(self) -> NameForms:
        return self.forms(self.snapshot, lambda: self.own_tree)

    @cached_property
    def _forms(self) -> NameForms | None:
        """The forms of names on disk and in memory; None if the stored names are those on disk."""
        found = self._both_forms
        return found if found.differ and found.are_in_memory(self.stored_kinds) else None

    def on_disk(self, name: str) -> str:
        """Return the name under which save_pretrained would have written this tensor."""
        name = self._both_forms.of_today(name)
        return self._forms.on_disk(name) if self._forms else name

    def patterns_on_disk(self, pattern: str) -> tuple[str, ...]:
        """Return the name patterns that save_pretrained writes for this in-memory pattern."""
        return self._both_forms.patterns_on_disk(self.on_disk(pattern))

    def is_stack(self, name: str) -> bool:
        """Whether save_pretrained writes several tensors for this tensor in memory."""
        pattern = name_pattern(name)
        return self.patterns_on_disk(pattern) != (self.on_disk(pattern),)

    @cached_property
    def own_tree(self) -> ClassTree | None:
        """The tree of the audited class; None without a form, or if the config is invalid."""
        with suppress(CheckpointError):
            return self.tree(self.snapshot)
        return None

    @property
    def base_prefix(self) -> str | None:
        """The base model's prefix, which loading adds or removes; None if it is unknown."""
        return self.own_tree.prefix if self.own_tree else None

    @cached_property
    def strange(self) -> tuple[StoredTensor, ...]:
        """The unexpected stored tensors; all stored tensors if a finding omits the names."""
        if self.unnamed:
            return self.stored
        return tuple(tensor for one in self._of(UnexpectedFinding) for tensor in one.tensors)

    @cached_property
    def strange_named(self) -> Mapping[str, StoredTensor]:
        """The unexpected stored tensors by name."""
        return {tensor.name: tensor for tensor in self.strange}

    @cached_property
    def lacking_named(self) -> Mapping[str, ExpectedTensor]:
        """The missing expected tensors by name."""
        return {tensor.name: tensor for tensor in self.lacking}

    @cached_property
    def strange_kinds(self) -> tuple[NameKind, ...]:
        """The names of the unexpected stored tensors, grouped by kind."""
        return self.stored_kinds if self.unnamed else self.unexpected_kinds

    @cached_property
    def unnamed(self) -> bool:
        """Whether a finding counts unexpected tensors without naming them."""
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
        """The number of stored or of expected tensors, whichever is larger."""
        expected = self.report.expected.tensors if self.report.expected else 0
        observed = self.report.observed.tensors if self.report.observed else 0
        named = sum(one.count for one in self.report.findings)
        return max(1, len(self.stored), expected, observed, named)

    @cached_property
    def hidden(self) -> Mapping[str, tuple[ExpectedTensor, ...]]:
        """The expected tensors that an unread file may contain, by name of that file or index."""
        return {one.file: one.hidden for one in self._of(OfFile)}

    @cached_property
    def implied_shapes(self) -> Shapes:
        """The shapes of the tensors that the config implies, by name; empty if they are unknown."""
        return self.implied(self.snapshot) or {}

    @property
    def is_large(self) -> bool:
        """Whether one audit of the model takes so long that the time budget allows only a few."""
        return self.size > _LARGE

    @cached_property
    def is_strange(self) -> bool:
        """Whether the model is large and has more kinds of names of another model than of its own.

        No value of a config key, and no class of the same type, makes such names expected. Layers
        or experts beyond the config's number do not count: their names differ from expected ones
        only in numbers. Nor do scales of packed weights.
        """
        found = [one for one in self.alarms if isinstance(one, UnexpectedFinding)]
        observed = self.report.observed.tensors if self.report.observed else 0
        if not self.is_large or 2 * sum(one.count for one in found) <= observed:
            return False
        kinds = self._implied_patterns()
        strange = sum(kind.pattern not in kinds for kind in self.unexpected_kinds)
        return strange > sum(kind.pattern in kinds for kind in self.stored_kinds)

    def _implied_patterns(self) -> set[str]:
        """The patterns of the names that the config implies."""
        if self.own_tree:
            return {name_pattern(leaf.name) for leaf in leaves(self.own_tree.tree)}
        return {kind.pattern for kind in kinds_of(self.implied_shapes)}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...] | None]:
        """The shapes of the stored tensors, by name."""
        return {tensor.name: tensor.shape for tensor in self.stored}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config's values; an empty dict if it is absent or cannot be read."""
        config = self.snapshot.config
        return config.values if config else {}

    @cached_property
    def unpacked(self) -> HeldTensors:
        """The stored tensors after unpacking; only the index's names if no header was read."""
        snapshot = self.snapshot
        if self.stored or snapshot.index is None:
            return held(self.stored, self.stored_kinds, self.config, snapshot.packing)
        try:
            return HeldTensors(dict.fromkeys(snapshot.index.as_index.weight_map))
        except CheckpointError:
            return HeldTensors({})

    @cached_property
    def holdings(self) -> HeldTensors:
        """The unpacked tensors under the names on disk, as in the class's tree."""
        found = self.unpacked
        if self.stored and self._both_forms.has_stacks:
            found = HeldTensors(self._both_forms.separated(found.shapes, found.name_kinds))
        return found.renamed(self.on_disk)


def once(make: Callable[[Case], _Kind]) -> Callable[[Case], _Kind]:
    """Keep the result of a function of a case, which is called once for each case."""

    @wraps(make)
    def kept(case: Case) -> _Kind:
        known: dict[Callable[..., Any], Any] = vars(case).setdefault("_once", {})
        if make not in known:
            known[make] = make(case)
        found: _Kind = known[make]
        return found

    return kept


AlarmKey = tuple[str, str]  # the kind of a finding, and one of the names that it lists
UNCHANGED: Mapping[str, str] = MappingProxyType({})


def alarm_keys(finding: Finding, renames: Mapping[str, str] = UNCHANGED) -> Iterator[AlarmKey]:
    """Yield (kind of finding, name after renaming) for each name; (kind, "") if none is named."""
    for name in finding.names or ("",):
        yield finding.kind, renames.get(name, name)


def composed(first: Mapping[str, str], then: Mapping[str, str]) -> Mapping[str, str]:
    """Return {original name: final name} for one renaming followed by another."""
    return {**then, **{name: then.get(other, other) for name, other in first.items()}}
