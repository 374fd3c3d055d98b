"""The JSON object of an outcome (schema 1) as structs, from which report.schema.json is generated.

The comments of fields are the schema's descriptions. Keys are only ever added: decoding accepts
what older versions wrote, whose absent keys get their defaults.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from auditor.errors import Reason
from auditor.findings import Count, RecordedFinding, Severity
from auditor.reconciler.loading.report import LoadReport
from auditor.reconciler.rows import ModuleRow
from auditor.reconciler.tensor_values import BaseComparison, TensorValues
from auditor.report import FileTally, FixCommand, Source, Verdict

Texts = tuple[str, ...]
Shape = tuple[Count, ...]
Share = Annotated[float, Meta(extra_json_schema={"minimum": 0})]


class SymbolObject(Struct, frozen=True):
    """A letter of a formula."""

    letter: str
    key: str  # the config key
    value: int
    default: bool  # the config leaves the key out
    formula: str | None = None  # in terms of other letters, such as 4*D


class ExpectedObject(Struct, frozen=True, kw_only=True):
    """The expected side, by the config; null values are not known."""

    by: Literal["closed-form", "generated", "oracle"] | None = None  # what computed it
    parameters: Count | None = None
    formula: str | None = None
    tensors: Count | None = None
    legend: tuple[SymbolObject, ...] = ()
    active: Count | None = None  # parameters for one token in a mixture of experts; null: all
    # The library of the oracle, "transformers 5.23.0", or of a generated form, with the number of
    # random configs on which it was compared.
    library: str | None = None


class WeightsObject(Struct, frozen=True, kw_only=True):
    """The stored tensors of one dtype."""

    dtype: str  # the layout's dtype of packed weights, or "quantization-data"
    tensors: Count
    parameters: Count
    bytes: Count
    bits_per_parameter: Share | None


class ObservedObject(Struct, frozen=True, kw_only=True):
    """The observed side, by the files; null values are not known."""

    files: Count | None = None
    bytes: Count | None = None  # of tensor data
    tensors: Count | None = None
    elements: Count | None = None  # numbers stored
    parameters: Count | None = None  # learned numbers, each counted once
    trainable: Count | None = None
    by_dtype: dict[str, Count] = {}  # elements by dtype, as safetensors names it
    by_file: tuple[FileTally, ...] = ()
    layout: str | None = None  # how the weights are packed; null: not packed
    weights: tuple[WeightsObject, ...] = ()


class UndeterminedObject(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The declared value of a config key whose right value no shape determines."""

    declared: Any
    determined: Literal[False] = False


class CauseObject(Struct, frozen=True, kw_only=True):
    """A cause that, undone in memory, closes findings."""

    cause: str
    severity: Severity
    level: Literal["headers", "repository", "values"] = "headers"
    summary: str
    explains: str = ""  # the share of the names that is explained; "": all of its findings
    fix: str
    # Config key -> what is declared and what the files hold, or an object if that is not known.
    fields: dict[str, tuple[Any, Any] | UndeterminedObject] = {}
    # Config key -> value, for each choice that fits the files, if they do not decide.
    alternatives: tuple[dict[str, Any], ...] = ()
    findings: tuple[Count, ...]  # by their places
    evidence: Texts = ()
    # Errors and warnings of an audit without this cause and those before it; null: not audited.
    remaining: int | None = None


class FetchedObject(Struct, frozen=True, kw_only=True):
    """The network traffic, redirects and retries counted."""

    requests: Count = 0
    bytes: Count = 0
    seconds: Share = 0.0


class LayerObject(Struct, frozen=True, kw_only=True):
    """The cache of one layer, in elements."""

    layer: Count
    elements: Count  # for each token
    # The sliding window in tokens; null: all tokens are kept. A growing cache keeps one token less.
    window: Count | None
    states: Count
    wide_states: Count


class CacheObject(Struct, frozen=True, kw_only=True):
    """The cache that transformers keeps in decoding, in elements."""

    # All layers together, while no window is full.
    per_token: Count = field(name="elements_per_token")
    states: Count  # of convolutions and recurrences, in the dtype of the cache
    wide_states: Count  # likewise, in F32 whatever the dtype
    cross: Count = field(name="cross_per_token")  # for each token of the encoder
    frames: Count | None  # the fixed number of the encoder's tokens; null if inputs decide
    layers: tuple[LayerObject, ...]


class ValuesObject(Struct, frozen=True, kw_only=True):
    """The statistics of the numbers that were read."""

    bytes: Count  # that were read
    of: Count  # bytes of all tensors
    of_tensors: Count  # tensors that are stored
    sampled: bool  # only some ranges were read, from the Hub
    base: BaseComparison | None
    tensors: tuple[TensorValues, ...]


class ClaimObject(Struct, frozen=True, kw_only=True):
    """A published size of the model, and the verdict on it."""

    where: Literal["name", "hub", "card"]
    key: str  # the repository's name, or the key with the number
    text: str
    claim: Count
    verdict: Literal["confirmed", "confirmed to its rounding", "refuted"]
    actual: Count


class EngineObject(Struct, frozen=True, kw_only=True):
    """Whether a serving engine loads the checkpoint."""

    loads: bool | Literal["unknown"]
    reasons: Texts  # why it does not load, or what it ignores or reads otherwise
    additions: dict[str, Any]  # config keys that would help the engine, with values
    scheme: str | None = None  # for quantized layers, by its own code; "unknown": not recorded
    applied: int | None = None  # modules of an adapter that it applies; null for a model
    of: int | None = None  # modules with tensors in the adapter's file
    version: str  # of the engine whose loader was recorded
    date: str  # of the recording


class Document(Struct, frozen=True, kw_only=True):
    """The JSON object of one outcome."""

    schema: Literal[1] = 1
    requested: str = ""  # as the user wrote it
    model: str | None = None  # the Hub id after renames, or the path
    commit: str | None = None
    source: Source | None = None
    target: str | None = None  # the class that the audit is for
    model_type: str | None = None
    expected: ExpectedObject | None = None
    observed: ObservedObject | None = None
    modules: tuple[ModuleRow, ...] = ()  # in natural order; the first is the whole model
    findings: tuple[RecordedFinding, ...] = ()
    # Parameters observed, minus those expected, minus what all findings explain, also ignored ones.
    residual: int | None = None
    verdict: Verdict | None = None  # null: not audited yet, in a sweep's reports
    reason: Reason | None = None  # why the checkpoint could not be audited
    fetched: FetchedObject = FetchedObject()
    detail: str | None = None  # the reason in one sentence: what, where, what to do
    origin: str | None = None  # the source of the bytes
    version: str | None = None  # a digest of the listing of a store; null: no store, or not known
    declared: Texts = ()  # the config's architectures
    unchecked: Texts = ()  # what was not compared, a sentence each
    notes: Texts = ()  # decisions that a reader should know
    ignored: tuple[RecordedFinding, ...] = ()  # findings that the user left out of the verdict
    # What is cached in decoding; null if the class does not decode or its cache is not known.
    kv_cache: CacheObject | None = None
    # Folder of a component, "." for the repository's own model; null: the complete repository.
    component: str | None = None
    # The outcomes of a repository of several models, whose counts are their sums.
    parts: tuple["Document", ...] = ()
    companions: Texts | None = None  # companion files that were read; null: not asked for
    # null if it cannot be computed: names or shapes are not known, weights are packed, or other
    # software loads the model.
    load_report: LoadReport | None = None
    diagnosis: tuple[CauseObject, ...] = ()
    values: ValuesObject | None = None  # null: numbers were not asked for
    claims: tuple[ClaimObject, ...] = ()
    engines: dict[str, EngineObject] = {}  # by engine; empty if none was asked for
    auditor: str | None = None  # the version of this program; null: not stated, as in a sweep
    audited_on: str | None = None  # the date of the command, in UTC; null: likewise
    fix_command: FixCommand | None = None  # null: no command mends it, or none was planned

    @property
    def every(self) -> tuple["Document", ...]:
        """The object and those of its components."""
        return (self, *(one for part in self.parts for one in part.every))

    def causes_of(self, at: int) -> tuple[str, ...]:
        """Return the names of the causes that explain the finding with index `at`."""
        return tuple(cause.cause for cause in self.diagnosis if at in cause.findings)


class ListedFinding(Struct, frozen=True):
    """A finding of an outcome with its component; or a cause, whose fields are the names."""

    kind: str
    severity: Severity
    names: tuple[str, ...]
    folded: tuple[str, ...]
    count: int
    parameters: int
    reason: str
    component: str | None
    file: str | None = None
    causes: tuple[str, ...] = ()  # names of the causes that explain the finding
    fix: str = ""  # of a cause
    finding: RecordedFinding | None = None  # None: a cause

    @property
    def identity(self) -> tuple[str, ...]:
        """A key that the finding keeps in later audits of its model."""
        return (self.kind, self.component or "", self.file or "", *sorted(self.folded))


def listed_findings(part: Document, *, ignored: bool = False) -> tuple[ListedFinding, ...]:
    """Return the findings of one model, or those that --ignore leaves out."""
    return tuple(
        ListedFinding(
            finding.kind,
            finding.severity,
            finding.names or finding.folded,
            finding.folded,
            finding.count,
            finding.parameters,
            finding.reason,
            part.component,
            file=finding.named_file or None,
            causes=() if ignored else part.causes_of(at),
            finding=finding,
        )
        for at, finding in enumerate(part.ignored if ignored else part.findings)
    )


def listed_causes(part: Document) -> tuple[ListedFinding, ...]:
    """Return the causes of one model in the form of findings."""
    return tuple(
        ListedFinding(
            cause.cause,
            cause.severity,
            (*cause.fields,),
            (*cause.fields,),
            len(cause.findings),
            0,
            cause.summary,
            part.component,
            fix=cause.fix,
        )
        for cause in part.diagnosis
    )
