"""Report | Unaudited: what one audit found out, and what it did not."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict, astuple

from auditor.analytic import Expectation, ModuleFormula
from auditor.analytic import Symbol as Symbol  # noqa: PLC0414 - a report's, for the formats
from auditor.analytic.kv_cache import KVCache as KVCache  # noqa: PLC0414 - likewise
from auditor.checkpoint.snapshot import Fetched, Snapshot, Source
from auditor.claims.verdict import PublishedCount
from auditor.errors import Reason
from auditor.findings import Finding, Severity
from auditor.messages import quoted
from auditor.observation import Observation
from auditor.reconciler.loading.report import LoadReport
from auditor.reconciler.rows import ModuleRow, TensorRow, TensorTable, Weights
from auditor.reconciler.tensor_values import TensorValues, ValuesRead
from auditor.tensors import natural_key
from auditor.walker import Walk

if TYPE_CHECKING:
    import pandas as pd

_COUNTS = ("tensors", "elements", "parameters", "trainable", "bytes", "expected", "difference")

VALUES = TensorValues.__struct_fields__  # the columns of numbers, in order
_FRAME_COUNTS = frozenset({"count", "parameters", "explains", "findings"})

Verdict = Literal["clean", "findings", "unaudited"]


class Expected(Struct, frozen=True, kw_only=True):
    """The expected side: what the config implies for the target class."""

    by: Literal["closed-form", "oracle"]
    tensors: int
    parameters: int
    formula: str
    legend: tuple[Symbol, ...] = ()
    active: ModuleFormula | None = None  # what one token uses, of a mixture of experts
    library: str | None = None  # whom the oracle asked: "transformers 5.23.0"


class FileTally(Struct, frozen=True, kw_only=True):
    """One weight file of the audited set."""

    name: str
    size: int | None  # bytes of the whole file; None: not known
    tensors: int
    elements: int | None
    parameters: int | None


class Observed(Struct, frozen=True, kw_only=True):
    """The observed side: what the files hold. None stands for "not known": no header was read."""

    files: int
    bytes: int | None  # of tensor data
    tensors: int
    elements: int | None  # numbers stored
    parameters: int | None  # learned numbers, each counted once
    trainable: int | None  # parameters that a fresh build would train
    by_dtype: tuple[tuple[str, int], ...] = ()  # (dtype, elements), sorted by dtype
    by_file: tuple[FileTally, ...] = ()  # sorted by name
    layout: str | None = None  # how the weights are packed; None: each tensor is one of the model
    weights: tuple[Weights, ...] = ()  # by what a number is stored in; () where it is not known


class Diagnosis(Struct, frozen=True, kw_only=True):
    """One cause of several findings: undone in memory, they go away."""

    cause: str  # of a closed list: wrapper-prefix, config-field, ...
    severity: Severity
    level: Literal["headers", "repository", "values"] = "headers"
    summary: str
    fix: str
    fields: tuple[tuple[str, Any, Any], ...] = ()  # (config key, declared, what the files hold)
    undetermined: tuple[tuple[str, Any], ...] = ()  # (config key, declared); no shape gives a value
    findings: tuple[int, ...] = ()  # by their places in the report
    evidence: tuple[str, ...] = ()


class Outcome(Observation, frozen=True, kw_only=True):
    """The fields that Report and Unaudited share."""

    _aside = ("tensors",)

    requested: str  # as the user wrote it
    model: str | None = None  # the Hub id after renames, or the path
    commit: str | None = None
    source: Source | None = None
    origin: str | None = None  # how the bytes came to be here, in one sentence
    declared: tuple[str, ...] = ()  # config.architectures
    target: str | None = None
    model_type: str | None = None
    expected: Expected | None = None
    observed: Observed | None = None
    kv_cache: KVCache | None = None  # what decoding keeps of every token; None: it decodes nothing
    modules: Sequence[ModuleRow] = ()  # in natural order of prefixes, the root first
    findings: tuple[Finding, ...] = ()
    diagnosis: tuple[Diagnosis, ...] = ()  # why, as far as undoing it closes findings
    ignored: tuple[Finding, ...] = ()  # findings the user asked to leave out of the verdict
    unchecked: tuple[str, ...] = ()  # what was not compared, a sentence each
    notes: tuple[str, ...] = ()  # decisions the reader should know of
    load_report: LoadReport | None = None  # what from_pretrained would say; None: not known
    # Name of a finding about tensors -> the names under which from_pretrained looks for it.
    in_memory: Mapping[str, tuple[str, ...]] | None = None  # None: other software loads the model
    claims: tuple[PublishedCount, ...] = ()  # what is published of its size, and whether it is true
    values: ValuesRead | None = None  # what the numbers are; None: they were not asked for
    fetched: Fetched = field(default_factory=Fetched)
    component: str | None = None  # of a part: its folder, "." the repository's own; None: the whole
    parts: tuple["Report | Unaudited", ...] = ()  # of several models in one repository, by folder
    tensors: TensorTable | None = None  # None: nothing was compared

    @classmethod
    def begin(cls, snapshot: Snapshot, requested: str) -> "Outcome":
        """Return the outcome of a checkpoint that was only fetched so far."""
        return Outcome(
            requested=requested,
            model=snapshot.model,
            commit=snapshot.commit,
            source=snapshot.source,
            origin=snapshot.origin,
            fetched=snapshot.fetched,
        )

    def as_report(self, residual: int | None) -> "Report":
        """All that is known, as the outcome of an audit."""
        return Report(residual=residual, **asdict(self))

    def as_unaudited(self, reason: Reason, detail: str) -> "Unaudited":
        """All that is known, where there was no audit."""
        known = {name: getattr(self, name) for name in Outcome.__struct_fields__}
        return Unaudited(reason=reason, detail=detail, **known)

    @property
    def every(self) -> tuple["Report | Unaudited", ...]:
        """The outcome and its parts: whose findings together say all that there is to say."""
        if not isinstance(self, Report | Unaudited):
            raise TypeError("an outcome is a Report or Unaudited")
        return (self, *self.parts)

    def __repr__(self) -> str:
        """One line: a report holds every tensor that is amiss."""
        one = self.every[0]
        said = [quoted(self.model or self.requested), one.verdict]
        if isinstance(one, Unaudited):
            said.append(one.reason)
        if self.observed and self.observed.parameters is not None:
            said.append(f"{self.observed.parameters:,} parameters stored")
        if self.expected:
            said.append(f"{self.expected.parameters:,} expected")
        causes = [each.cause for part in self.every for each in part.diagnosis]
        return f"{type(self).__name__}({', '.join([*said, *causes])})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the causes, a drawing of the modules."""
        return _format("notebook").fragment(self)  # type: ignore[no-any-return]

    def to_dict(self) -> dict[str, Any]:
        """The object that `audit --format json` prints."""
        return _format("as_json").as_object(self)  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """The line that `audit --format json` prints."""
        return _format("as_json").render(self)  # type: ignore[no-any-return]

    def findings_frame(self) -> "pd.DataFrame":
        """One row a finding, columns as in `findings.csv`; needs the `frames` extra."""
        return self._frame("findings")

    def diagnosis_frame(self) -> "pd.DataFrame":
        """One row a cause, columns as in `diagnosis.csv`; needs the `frames` extra."""
        return self._frame("diagnosis")

    def _frame(self, table: str) -> "pd.DataFrame":
        import pandas as pd  # noqa: PLC0415 - takes half a second, and few calls need it

        columns, rows = _format("as_csv").table_of(self, table)
        frame = pd.DataFrame(rows, columns=list(columns))
        counts = dict.fromkeys(_FRAME_COUNTS.intersection(columns), "Int64")
        return frame.astype(counts)

    def tensors_frame(self) -> "pd.DataFrame":
        """One row a tensor, stored or expected and not stored; needs the `frames` extra.

        In the model's own order. Columns: component, name, file, dtype, shape, elements,
        parameters, expected_shape, status, expected_name; with `values=True` those of its numbers
        (`values_frame`). Of a repository of several models, the tensors of all of them.
        """
        import pandas as pd  # noqa: PLC0415 - takes half a second, and few calls need it

        rows = [
            (one.component, *row) for one in self.every if one.tensors for row in one.tensors.rows()
        ]
        frame = pd.DataFrame(rows, columns=["component", *TensorRow._fields])
        frame = frame.astype({"elements": "Int64", "parameters": "Int64"})
        read = [one for one in self.every if isinstance(one.values, ValuesRead)]
        if not read:
            return frame
        parts = [one.values_frame().assign(component=one.component) for one in read]
        numbers = pd.concat(parts).drop(columns=["model", "commit_sha", "dtype"])
        return frame.merge(numbers, how="left", on=["component", "name", "file"])

    def modules_frame(self) -> "pd.DataFrame":
        """One row a module prefix, columns as in `modules.csv`; needs the `frames` extra.

        Counts are nullable Int64, `share` is a fraction of 1, `prefix` "" is the whole model.
        Raises ImportError, with the install command, where pandas is not installed.
        """
        import pandas as pd  # noqa: PLC0415 - takes half a second, and few calls need it

        rows = [(self.model, self.commit, *astuple(row)) for row in self.modules]
        names = ("model", "commit_sha", *ModuleRow.__struct_fields__)
        frame = pd.DataFrame(rows, columns=list(names))
        return frame.astype(dict.fromkeys(_COUNTS, "Int64"))

    def values_frame(self) -> "pd.DataFrame":
        """One row a tensor whose numbers were read, columns of their numbers; as above.

        Without `values=True` it has no row; what needs `statistics=True` is missing without it.
        """
        import pandas as pd  # noqa: PLC0415 - as above

        read = self.values.tensors if self.values else ()
        rows = [(self.model, self.commit, *(getattr(one, at) for at in VALUES)) for one in read]
        frame = pd.DataFrame(rows, columns=["model", "commit_sha", *VALUES])
        return frame.astype(
            dict.fromkeys(("numbers", "read", "nan", "inf", "zeros"), "Int64")
            | dict.fromkeys(("absmax", "minimum", "maximum", "mean", "std"), "float64")
        )


class Report(Outcome, frozen=True, kw_only=True):
    """The checkpoint was audited: every tensor is accounted for, or named in a finding."""

    residual: int | None  # what no finding explains; None: there was nothing to subtract

    @property
    def verdict(self) -> Verdict:
        found = (finding for one in self.every for finding in one.findings)
        alarms = any(finding.severity is not Severity.INFO for finding in found)
        unexplained = any(isinstance(one, Report) and one.residual for one in self.every)
        return "findings" if alarms or unexplained else "clean"


class Unaudited(Outcome, frozen=True, kw_only=True):
    """The checkpoint could not be audited, and why. Never a clean bill."""

    reason: Reason
    detail: str  # what, where and what to do, in one line

    @property
    def verdict(self) -> Verdict:
        return "unaudited"


def _format(name: str) -> Any:
    """A module of `formats`, which knows reports: by its name, and when somebody asks.

    Were it imported, what an outcome depends on would include how it is shown.
    """
    return import_module(f"auditor.formats.{name}")


def expected_side(expectation: Expectation) -> Expected:
    """The report's summary of an expectation."""
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
    """The report's summary of what is stored; without `shapes` every count but names is None."""
    everything = walked.total
    return Observed(
        files=len(snapshot.headers),
        bytes=everything.bytes if shapes else None,
        tensors=everything.tensors,
        elements=everything.elements if shapes else None,
        parameters=everything.parameters if shapes else None,
        trainable=everything.trainable if shapes else None,
        by_dtype=tuple((name, tally.elements) for name, tally in walked.by_dtype().items()),
        by_file=_file_tallies(walked, snapshot) if shapes else (),
        layout=layout,
        weights=weights,
    )


def _file_tallies(walked: Walk, snapshot: Snapshot) -> tuple[FileTally, ...]:
    tallies = walked.by_file()
    return tuple(
        FileTally(
            name=head.name,
            size=head.size,
            tensors=tallies[head.name].tensors if head.name in tallies else 0,
            elements=tallies[head.name].elements if head.name in tallies else None,
            parameters=tallies[head.name].parameters if head.name in tallies else None,
        )
        for head in snapshot.headers
    )


def residual(observed: Observed, expected: int, findings: Iterable[Finding]) -> int | None:
    """Return the part of stored minus expected parameters that no finding explains (law 3: 0)."""
    if observed.parameters is None:
        return None
    return observed.parameters - expected - sum(finding.explains for finding in findings)


_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by kind and names, so that the same audit prints the same report."""
    return tuple(
        sorted(
            findings,
            key=lambda finding: (
                _RANK[finding.severity],
                finding.kind,
                tuple(map(natural_key, finding.names[:1])),
                finding.reason,
            ),
        )
    )
