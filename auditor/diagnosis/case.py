"""The evidence that a cause examines, and what a cause proposes.

A `Case` has the tensors in groups: `stored`, `missing`, `unexpected` and `mismatched` (with the
expected tensor of each). `unmatched` are the stored tensors that may belong under other names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, wraps
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from auditor.analytic import ExpectedTensor
from auditor.analytic.config_keys import changed
from auditor.analytic.name_forms import NameForms
from auditor.analytic.outline import ClassTree, leaves
from auditor.checkpoint.change import UNCHANGED, Change, Replacements, header_of, replacing, shaped
from auditor.checkpoint.json_edits import Edit, json_edits
from auditor.checkpoint.snapshot import Snapshot, read_index
from auditor.containers.index import indexed_files
from auditor.diagnosis.solving.held_tensors import HeldTensors, held
from auditor.errors import CheckpointError
from auditor.findings import (
    Finding,
    FindingKind,
    MatchedPair,
    Mismatched,
    Missing,
    Severity,
    is_of_repository,
)
from auditor.findings import Unexpected as UnexpectedFinding
from auditor.names.kinds import NameKind, chosen_of, kinds_of, name_pattern
from auditor.report import Report, Unaudited
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...]]  # tensor name -> shape, as a config implies them
_Evidence = TypeVar("_Evidence", bound=Finding)
_Result = TypeVar("_Result")
_Tensor = TypeVar("_Tensor", StoredTensor, ExpectedTensor)
_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_LARGE = 2000  # tensors; auditing more of them takes long


class Proposal(Struct, frozen=True, kw_only=True):
    """A change that removes findings, with the cause that it reverses and the words for it.

    If a broken file has no replacement (a Git LFS pointer instead of a config), nothing changes,
    and `proven` are the findings that the bytes of the file explain.
    """

    cause: str  # its name, such as `fused-names`
    change: Change = Change()
    proven: tuple[Finding, ...] = ()  # findings explained without another audit
    target: str | None = None  # another class to audit for
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
    refused: str = ""  # why `fix` must not write the change; "" if it may
    exact: bool = False  # valid only if no alarm remains after the change
    certain: bool = True  # whether a fix may be written; not if another change is as good
    is_reading: bool = False  # not certain, but without a rival: a fix needs permission


class TensorGroup(Generic[_Tensor]):
    """Some tensors, by name and by kind of names (names that differ only in their numbers)."""

    def __init__(
        self,
        tensors: Iterable[_Tensor],
        kinds: Callable[[tuple[str, ...]], tuple[NameKind, ...]] = kinds_of,
    ) -> None:
        self.tensors: tuple[_Tensor, ...] = tuple(tensors)
        self.names: tuple[str, ...] = tuple(one.name for one in self.tensors)
        self._kinds = kinds

    def __iter__(self) -> Iterator[_Tensor]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def kinds(self) -> tuple[NameKind, ...]:
        """The names, grouped by kind."""
        return self._kinds(self.names)

    @cached_property
    def by_name(self) -> Mapping[str, _Tensor]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}


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

    # --- the tensors ---------------------------------------------------------------------------

    @cached_property
    def stored(self) -> TensorGroup[StoredTensor]:
        """The tensors of all files whose headers could be read."""
        tables = (head.parsed for head in self.snapshot.headers)
        good = (table for table in tables if not isinstance(table, CheckpointError))
        tensors = tuple(tensor for table in good for tensor in table.tensors)
        return TensorGroup(tensors, kinds=lambda names: kinds_of(dict.fromkeys(names)))

    @cached_property
    def missing(self) -> TensorGroup[ExpectedTensor]:
        """The expected tensors that no file stores, named in the form of the stored names."""
        tensors = tuple(tensor for one in self._of(Missing) for tensor in one.tensors)
        if (forms := self._forms) is not None:
            tensors = tuple(one._replace(name=forms.in_memory(one.name)) for one in tensors)
        return TensorGroup(tensors)

    @cached_property
    def unexpected(self) -> TensorGroup[StoredTensor]:
        """The stored tensors that the class does not expect, as far as findings name them."""
        found = tuple(self._of(UnexpectedFinding))
        names = frozenset(name for one in found for name in one.names)
        is_read = names <= self.shapes.keys()  # else the index lists names of absent files
        stored = self.stored  # a function that held this case would keep it in memory for good
        return TensorGroup(
            (tensor for one in found for tensor in one.tensors),
            kinds=(lambda _: chosen_of(stored.kinds, names)) if is_read else kinds_of,
        )

    @cached_property
    def unmatched(self) -> TensorGroup[StoredTensor]:
        """The unexpected stored tensors; all stored tensors if a finding omits the names."""
        return self.stored if self.unnamed else self.unexpected

    @cached_property
    def mismatched(self) -> tuple[MatchedPair, ...]:
        return tuple(pair for one in self._of(Mismatched) for pair in one.pairs)

    @cached_property
    def unnamed(self) -> bool:
        """Whether a finding counts unexpected tensors without naming them."""
        return any(one.more for one in self._of(UnexpectedFinding))

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...] | None]:
        """The shapes of the stored tensors, by name."""
        return {tensor.name: tensor.shape for tensor in self.stored}

    @cached_property
    def unpacked(self) -> HeldTensors:
        """The stored tensors after unpacking; only the index's names if no header was read."""
        snapshot = self.snapshot
        if self.stored or snapshot.index is None:
            return held(self.stored.tensors, self.stored.kinds, self.config, snapshot.packing)
        try:
            return HeldTensors(dict.fromkeys(snapshot.index.as_index.weight_map))
        except CheckpointError:
            return HeldTensors({})

    @cached_property
    def unpacked_on_disk(self) -> HeldTensors:
        """The unpacked tensors under the names on disk, as in the class's tree."""
        found = self.unpacked
        if self.stored and self._both_forms.has_stacks:
            found = HeldTensors(self._both_forms.separated(found.shapes, found.name_kinds))
        return found.renamed(self.on_disk)

    # --- findings --------------------------------------------------------------------------------

    @cached_property
    def alarms(self) -> tuple[Finding, ...]:
        """The alarming findings, except those about companion files and repeated config values.

        No change of names or sizes removes such excepted findings.
        """
        return tuple(filter(is_alarm, self.report.findings))

    def _of(self, kind: FindingKind[..., _Evidence]) -> Iterator[_Evidence]:
        return (one for one in self.report.findings if kind.describes(one))

    @cached_property
    def size(self) -> int:
        """The number of stored or of expected tensors, whichever is larger."""
        expected = self.report.expected.tensors if self.report.expected else 0
        observed = self.report.observed.tensors if self.report.observed else 0
        named = sum(one.count for one in self.report.findings)
        return max(1, len(self.stored), expected, observed, named)

    @property
    def is_large(self) -> bool:
        """Whether one audit of the model takes so long that the time budget allows only a few."""
        return self.size > _LARGE

    @cached_property
    def is_of_other_names(self) -> bool:
        """Whether the model is large and has more kinds of names of another model than of its own.

        No value of a config key, and no class of the same type, makes such names expected. Layers
        or experts beyond the config's number do not count: their names differ from expected ones
        only in numbers. Nor do scales of packed weights.
        """
        found = [one for one in self.alarms if UnexpectedFinding.describes(one)]
        observed = self.report.observed.tensors if self.report.observed else 0
        if not self.is_large or 2 * sum(one.count for one in found) <= observed:
            return False
        if self.own_tree:
            kinds = {name_pattern(leaf.name) for leaf in leaves(self.own_tree.tree)}
        else:
            kinds = {kind.pattern for kind in kinds_of(self.implied(self.snapshot) or {})}
        other = sum(kind.pattern not in kinds for kind in self.unexpected.kinds)
        return other > sum(kind.pattern in kinds for kind in self.stored.kinds)

    # --- the config and its class ----------------------------------------------------------------

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config's values; an empty dict if it is absent or cannot be read."""
        return config_of(self.snapshot)

    @property
    def is_adapter(self) -> bool:
        """Whether the config is that of an adapter of PEFT."""
        return "peft_type" in self.config

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
    def _both_forms(self) -> NameForms:
        return self.forms(self.snapshot, lambda: self.own_tree)

    @cached_property
    def _forms(self) -> NameForms | None:
        """The forms of names on disk and in memory; None if the stored names are those on disk."""
        found = self._both_forms
        return found if found.differ and found.are_in_memory(self.stored.kinds) else None

    def on_disk(self, name: str) -> str:
        """Return the name under which save_pretrained would have written this tensor."""
        name = self._both_forms.of_today(name)
        return self._forms.on_disk(name) if self._forms else name

    def patterns_on_disk(self, pattern: str) -> tuple[str, ...]:
        """Return the name patterns that save_pretrained writes for this in-memory pattern."""
        return self._both_forms.patterns_on_disk(self.on_disk(pattern))

    # --- changes ---------------------------------------------------------------------------------

    def edits(self, values: Mapping[str, Any]) -> tuple[Edit, ...]:
        """Return the edits that set values of the config, by dotted path; None removes a key."""
        return tuple(json_edits(self.config, changed(self.config, values)))

    def setting(self, values: Mapping[str, Any]) -> Change:
        """Return the change that sets values of the config, by dotted path."""
        return Change(edits=self.edits(values))

    def with_config(self, config: Mapping[str, Any]) -> Change:
        """Return the change that gives the checkpoint this config."""
        return Change(edits=tuple(json_edits(self.config, config)))

    def replacing(self, instead: Replacements) -> Change:
        """Return the change that replaces stored tensors, by name."""
        return replacing(self.stored, instead)

    def reshaping(self, shapes: Shapes) -> Change:
        """Return the change that gives stored tensors other shapes, by name."""
        known = self.stored.by_name
        return replacing(
            self.stored,
            {
                name: (shaped(known[name], shape),)
                for name, shape in shapes.items()
                if name in known
            },
        )

    def as_expected(self, pairs: Iterable[MatchedPair]) -> Change:
        """Return the change that gives stored tensors their expected shapes."""
        return self.reshaping({one.stored.name: one.expected.shape for one in pairs})

    def adding_missing(self, file: str = "another-file.safetensors") -> Change:
        """Return the change that adds the missing tensors, in their own file if any was read."""
        findings = (one for one in self.report.findings if Missing.describes(one))
        missing = [(tensor.name, tensor.shape) for one in findings for tensor in one.tensors]
        if self.snapshot.headers:
            added = header_of(file, missing, self.dtype_of_weights)
            return Change(files={file: added}, is_reindexed=True)
        first = next(iter(indexed_files(read_index(self.snapshot))), "")
        names = (first, *(name for name, _ in missing))
        return self.replacing(
            {first: tuple(StoredTensor(name, None, None, None, "", None) for name in names)}
        )

    @property
    def dtype_of_weights(self) -> str:
        """The dtype of the first stored tensor, else the declared dtype, else F32."""
        stored = next((tensor.dtype for tensor in self.stored if tensor.dtype), None)
        declared = self.config.get("dtype") or self.config.get("torch_dtype")
        return stored or _DTYPES.get(declared if isinstance(declared, str) else "", "F32")


def config_of(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the config's values; an empty dict if it is absent or cannot be read."""
    config = snapshot.config
    return config.values if config else {}


def once(make: Callable[[Case], _Result]) -> Callable[[Case], _Result]:
    """Keep the result of a function of a case, which is called once for each case."""

    @wraps(make)
    def kept(case: Case) -> _Result:
        known: dict[Callable[..., Any], Any] = vars(case).setdefault("_once", {})
        if make not in known:
            known[make] = make(case)
        found: _Result = known[make]
        return found

    return kept


def differing_axes(pair: MatchedPair) -> Mapping[int, tuple[int, int]]:
    """Return {axis: (stored length, expected length)} for the axes whose lengths differ."""
    lengths = enumerate(zip(pair.stored.shape or (), pair.expected.shape, strict=False))
    return {axis: (one, other) for axis, (one, other) in lengths if one != other}


AlarmKey = tuple[str, str]  # the kind of a finding, and one of the names that it lists


def is_alarm(finding: Finding) -> bool:
    """Whether a finding is an error or a warning about the files, the config or the tensors."""
    return finding.severity is not Severity.INFO and not is_of_repository(finding)


def alarm_keys(finding: Finding, renames: Mapping[str, str] = UNCHANGED) -> Iterator[AlarmKey]:
    """Yield (kind of finding, name after renaming) for each name; (kind, "") if none is named."""
    for name in finding.names or ("",):
        yield finding.kind, renames.get(name, name)
