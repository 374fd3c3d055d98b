"""Report | Unaudited: the outcome of one audit. Data only; `auditor.formats` shows it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from auditor.analytic import Expectation, ModuleFormula
from auditor.analytic import Symbol as Symbol  # noqa: PLC0414 - a report's, for the formats
from auditor.analytic.kv_cache import KVCache as KVCache  # noqa: PLC0414 - likewise
from auditor.analytic.kv_cache import generates
from auditor.checkpoint.change import Change
from auditor.checkpoint.json_edits import ABSENT as ABSENT  # noqa: PLC0414 - for the formats
from auditor.checkpoint.json_edits import Edit as Edit  # noqa: PLC0414 - likewise
from auditor.checkpoint.snapshot import Fetched as Fetched  # noqa: PLC0414 - likewise
from auditor.checkpoint.snapshot import ModelCard, RepoFile, Snapshot
from auditor.checkpoint.snapshot import Source as Source  # noqa: PLC0414 - likewise
from auditor.claims.verdict import PublishedCount
from auditor.engines import EngineVerdict as EngineVerdict  # noqa: PLC0414 - for the formats
from auditor.errors import Reason
from auditor.findings import (
    BadDigest,
    BadHeader,
    BadSize,
    Finding,
    MissingComponent,
    Severity,
    Unsafe,
)
from auditor.messages import quoted
from auditor.observation import Checked, Observation
from auditor.presented import PresentedOutcome
from auditor.reconciler.loading.report import LoadReport
from auditor.reconciler.rows import ModuleRow as ModuleRow  # noqa: PLC0414 - likewise
from auditor.reconciler.rows import Weights as Weights  # noqa: PLC0414 - likewise
from auditor.reconciler.tensor_rows import TensorTable
from auditor.reconciler.tensor_values import TensorValues, ValuesRead
from auditor.tensors import natural_key
from auditor.walker import Walk

VALUES = TensorValues.__struct_fields__  # the columns of numbers, in order

Verdict = Literal["clean", "findings", "unaudited"]

# Kinds of findings about files and folders whose tensors are not all known.
_UNREAD = frozenset(
    {BadDigest.kind, BadHeader.kind, BadSize.kind, MissingComponent.kind, Unsafe.kind}
)


class Expected(Struct, frozen=True, kw_only=True):
    """The expected side: what the config implies for the target class."""

    by: Literal["closed-form", "generated", "oracle"]
    tensors: int
    parameters: int
    formula: str
    legend: tuple[Symbol, ...] = ()
    active: ModuleFormula | None = None  # parameters that process one token in a mixture of experts
    base: int | None = None  # parameters of an adapter's base
    library: str | None = None  # of an oracle or a generated form: "transformers 5.23.0"


class FileTally(Struct, frozen=True, kw_only=True):
    """The counts of one weight file of the audited set."""

    name: str
    size: int | None  # bytes of the complete file; None: unknown
    tensors: int
    elements: int | None
    parameters: int | None


class Observed(Struct, frozen=True, kw_only=True):
    """The observed side: what the files store. A count is None if no header was read."""

    files: int
    bytes: int | None  # of tensor data
    tensors: int
    elements: int | None  # numbers stored
    parameters: int | None  # learned numbers, each counted once
    trainable: int | None  # parameters of dtypes that can be trained
    by_dtype: tuple[tuple[str, int], ...] = ()  # (dtype, elements), sorted by dtype
    by_file: tuple[FileTally, ...] = ()  # sorted by name
    layout: str | None = None  # how the weights are packed; None: not packed
    weights: tuple[Weights, ...] = ()  # one item for each way of storing numbers; (): unknown


class Diagnosis(Struct, frozen=True, kw_only=True):
    """A cause of findings, which disappear if the audit is repeated without it, in memory."""

    cause: str  # one of a closed list: wrapper-prefix, config-field, ...
    severity: Severity
    level: Literal["headers", "repository", "values"] = "headers"
    summary: str
    explains: str = ""  # the explained share of the findings: `2 names of 3`; "": all of them
    fix: str
    fields: tuple[tuple[str, Any, Any], ...] = ()  # (config key, declared, stored)
    undetermined: tuple[tuple[str, Any], ...] = ()  # (config key, declared)
    alternatives: tuple[Mapping[str, Any], ...] = ()  # values of these keys; the files fit each
    findings: tuple[int, ...] = ()  # indices in the report
    evidence: tuple[str, ...] = ()
    # Errors and warnings of the audit without this cause and those before it; None: not audited.
    remaining: int | None = None
    change: Change | None = None  # with which the audit was repeated; None: nothing to change
    unwritten: str = ""  # why `audit fix` does not write the change; "" if it may
    is_reading: bool = False  # other names are read as the class's: `audit fix` needs permission


class Allowed(Struct, frozen=True):
    """A change that `audit fix` makes only with an option."""

    allow: str  # the value of the option
    consequence: str


class FixCommand(Struct, frozen=True, kw_only=True):
    """The `audit fix` command that mends a folder."""

    command: str
    effect: str  # in a few words: `renames 113 tensors; then it audits clean`
    allows: tuple[Allowed, ...] = ()


class Outcome(PresentedOutcome, Observation, frozen=True, kw_only=True):
    """The fields that Report and Unaudited share."""

    _aside = ("tensors", "files", "card", "checked")

    requested: str  # as the user wrote it
    model: str | None = None  # the Hub id after renames, or the path
    commit: str | None = None
    version: str | None = None  # of a store's listing
    source: Source | None = None
    origin: str | None = None  # the source of the bytes, in one sentence
    declared: tuple[str, ...] = ()  # config.architectures
    target: str | None = None
    model_type: str | None = None
    expected: Expected | None = None
    observed: Observed | None = None
    kv_cache: KVCache | None = None  # None: the model does not decode, or it is not known
    modules: Sequence[ModuleRow] = ()  # in natural order of prefixes, the root first
    findings: tuple[Finding, ...] = ()
    diagnosis: tuple[Diagnosis, ...] = ()  # causes of findings
    fix_command: FixCommand | None = None  # None: no command mends it, or it was not planned
    ignored: tuple[Finding, ...] = ()  # findings that --ignore leaves out of the verdict
    companions: tuple[str, ...] | None = None  # companion files that were read; None: not asked for
    unchecked: tuple[str, ...] = ()  # properties that were not compared, a sentence each
    notes: tuple[str, ...] = ()  # decisions that a reader should know
    load_report: LoadReport | None = None  # what from_pretrained would report; None: unknown
    # Name of a finding about tensors -> the names under which from_pretrained looks for it.
    in_memory: Mapping[str, tuple[str, ...]] | None = None  # None: other software loads the model
    claims: tuple[PublishedCount, ...] = ()  # published sizes, each with a verdict
    engines: tuple[EngineVerdict, ...] = ()  # what serving engines make of it; (): not asked
    values: ValuesRead | None = None  # statistics of the numbers read; None: not requested
    fetched: Fetched = field(default_factory=Fetched)
    component: str | None = None  # folder of a component; None: the complete repository
    parts: tuple["Report | Unaudited", ...] = ()  # the models of the repository, by folder
    tensors: TensorTable | None = None  # None: tensors were not compared
    files: tuple[RepoFile, ...] = ()  # all files of the repository, as listed, sorted by name
    card: ModelCard | None = None  # None: not read
    checked: Mapping[str, Checked] = field(default_factory=dict)  # by property; for `audit doctor`

    @classmethod
    def begin(cls, snapshot: Snapshot, requested: str) -> "Outcome":
        """Return the outcome of a checkpoint that was fetched and not yet examined."""
        return Outcome(
            requested=requested,
            model=snapshot.model,
            commit=snapshot.commit,
            version=snapshot.version,
            source=snapshot.source,
            origin=snapshot.origin,
            companions=companion_names(snapshot),
            fetched=snapshot.fetched,
            files=snapshot.files,
            card=snapshot.card,
        )

    @property
    def unknown_cache(self) -> str | None:
        """`not known for TYPE` if the class decodes and its cache is not known, else None."""
        if self.kv_cache is not None or not generates(self.target or ""):
            return None
        return f"not known for {self.model_type or self.target}"

    def as_report(self, residual: int | None) -> "Report":
        return Report(residual=residual, **asdict(self))

    def as_unaudited(self, reason: Reason, detail: str) -> "Unaudited":
        fields = {name: getattr(self, name) for name in Outcome.__struct_fields__}
        return Unaudited(reason=reason, detail=detail, **fields)

    @property
    def every(self) -> tuple["Report | Unaudited", ...]:
        """The outcome and its components, which together have all findings."""
        if not isinstance(self, Report | Unaudited):
            raise TypeError("an outcome is a Report or Unaudited")
        return (self, *self.parts)

    @property
    def explained(self) -> frozenset[int]:
        """The indices of findings that a cause explains."""
        return frozenset(at for cause in self.diagnosis for at in cause.findings)

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The errors and warnings of the outcome and its components."""
        found = (finding for part in self.every for finding in part.findings)
        return tuple(one for one in found if one.severity is not Severity.INFO)

    @property
    def unread(self) -> tuple[str, ...]:
        """The files and components whose tensors are not all known: nothing good is said of them.

        Findings that --ignore leaves out count too.
        """
        unread: list[str] = []
        for part in self.every:
            for finding in (*part.findings, *part.ignored):
                if finding.kind in _UNREAD or finding.evidence.get("hidden"):
                    unread += [finding.file] if finding.file else finding.names
            if isinstance(part, Unaudited):
                unread.append(part.component or part.requested)
        return tuple(dict.fromkeys(unread))

    @property
    def is_explained(self) -> bool:
        """Whether an audit without the only cause, in memory, has no error and no warning.

        False also if a file was not read, or if --ignore leaves out an alarm.
        """
        if len(self.diagnosis) != 1 or self.unread or self.diagnosis[0].remaining != 0:
            return False
        ignored = any(one.severity is not Severity.INFO for one in self.ignored)
        return not ignored and len(self.alarms) == len(self.diagnosis[0].findings)

    def __repr__(self) -> str:
        """Return one line: a report may contain thousands of tensors."""
        outcome = self.every[0]
        words = [quoted(self.model or self.requested), outcome.verdict]
        if isinstance(outcome, Unaudited):
            words.append(outcome.reason)
        if self.observed and self.observed.parameters is not None:
            words.append(f"{self.observed.parameters:,} parameters stored")
        if self.expected:
            words.append(f"{self.expected.parameters:,} expected")
        words += [diagnosis.cause for part in self.every for diagnosis in part.diagnosis]
        return f"{type(self).__name__}({', '.join(words)})"


def companion_names(snapshot: Snapshot) -> tuple[str, ...] | None:
    """Return the names of the companion files that were read; None if none were requested."""
    if snapshot.companions is None:
        return None
    return tuple(file.name for file in snapshot.companions if file.content is not None)


class Report(Outcome, frozen=True, kw_only=True):
    """The checkpoint was audited: every tensor is accounted for, or named in a finding."""

    residual: int | None  # parameters that no finding explains; None: unknown

    @property
    def verdict(self) -> Verdict:
        has_residual = any(isinstance(part, Report) and part.residual for part in self.every)
        return "findings" if self.alarms or has_residual else "clean"


class Unaudited(Outcome, frozen=True, kw_only=True):
    """The checkpoint could not be audited, and the reason; its verdict is never "clean"."""

    reason: Reason
    detail: str  # one line: what, where and what to do

    @property
    def verdict(self) -> Verdict:
        return "unaudited"


def expected_side(expectation: Expectation) -> Expected:
    """Return the report's summary of an expectation."""
    return Expected(
        by=expectation.by,
        tensors=expectation.listed.learned,
        parameters=expectation.parameters,
        formula=expectation.formula,
        legend=expectation.legend,
        active=expectation.active,
        library=expectation.library,
    )


def observed_side(
    walked: Walk,
    snapshot: Snapshot,
    *,
    shapes: bool,
    layout: str | None = None,
    weights: tuple[Weights, ...] = (),
) -> Observed:
    """Return the report's summary of the files; if not `shapes`, only tensors are counted."""
    total = walked.total
    return Observed(
        files=len(snapshot.headers),
        bytes=total.bytes if shapes else None,
        tensors=total.tensors,
        elements=total.elements if shapes else None,
        parameters=total.parameters if shapes else None,
        trainable=total.trainable if shapes else None,
        by_dtype=tuple((name, tally.elements) for name, tally in walked.by_dtype().items()),
        by_file=_file_tallies(walked, snapshot) if shapes else (),
        layout=layout,
        weights=weights,
    )


def _file_tallies(walked: Walk, snapshot: Snapshot) -> tuple[FileTally, ...]:
    tallies = walked.by_file()
    return tuple(
        FileTally(
            name=header.name,
            size=header.size,
            tensors=tally.tensors if tally else 0,
            elements=tally.elements if tally else None,
            parameters=tally.parameters if tally else None,
        )
        for header in snapshot.headers
        for tally in (tallies.get(header.name),)
    )


def residual(observed: Observed, expected: int, findings: Iterable[Finding]) -> int | None:
    """Return the part of stored minus expected parameters that no finding explains (law 3: 0)."""
    if observed.parameters is None:
        return None
    return observed.parameters - expected - sum(finding.explains for finding in findings)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: errors first, then by kind, first name and reason."""
    return tuple(
        sorted(
            findings,
            key=lambda finding: (
                finding.severity.rank,
                finding.kind,
                tuple(map(natural_key, finding.names[:1])),
                finding.reason,
            ),
        )
    )
