"""An outcome as JSON in the format of schema 1, and back: document.py has the structs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec.json
from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict

from auditor.claims.verdict import PublishedCount
from auditor.findings import Finding, QuantizationData, RecordedFinding
from auditor.formats import View
from auditor.formats.document import (
    CacheObject,
    CauseObject,
    ClaimObject,
    Document,
    EngineObject,
    ExpectedObject,
    FetchedObject,
    LayerObject,
    ObservedObject,
    SymbolObject,
    UndeterminedObject,
    ValuesObject,
    WeightsObject,
)
from auditor.formats.json_values import finite, json_text
from auditor.names.folding import fold
from auditor.reconciler.tensor_values import ValuesRead
from auditor.redaction import masked
from auditor.report import (
    Diagnosis,
    EngineVerdict,
    Expected,
    Fetched,
    Observed,
    Outcome,
    Report,
    Symbol,
    Unaudited,
    Weights,
)
from auditor.tensors import natural_key

_Object = TypeVar("_Object", bound=Struct)
# Fields of an outcome that are JSON values.
_SAME = (
    *("requested", "model", "commit", "source", "target", "model_type", "origin", "version"),
    *("declared", "unchecked", "notes", "component", "companions", "fix_command"),
)
_LOADS: Mapping[bool | None, Any] = {True: True, False: False, None: "unknown"}
_KNOWN: Mapping[Any, bool | None] = {True: True, False: False, "unknown": None}


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """Return one file, with a line for each outcome."""
    made = {"auditor": view.auditor or None, "audited_on": view.date or None}
    lines = (json_text({**as_object(outcome), **made}) for outcome in outcomes)
    return {"report.jsonl": "".join(f"{line}\n" for line in lines)}


def render(outcome: Report | Unaudited) -> str:
    """Encode an outcome as one object on one line, in ASCII."""
    return json_text(as_object(outcome))


def stored_text(outcome: Report | Unaudited) -> bytes:
    """Encode an outcome as UTF-8 without spaces, eight times faster than `render`."""
    try:
        return masked(msgspec.json.encode(document_of(outcome)))
    except UnicodeEncodeError:  # a name contains a lone surrogate, which UTF-8 cannot encode
        return render(outcome).encode()


def as_object(outcome: Report | Unaudited) -> dict[str, Any]:
    """Return the JSON object of an outcome."""
    document: dict[str, Any] = to_builtins(document_of(outcome))
    return document


def claims_object(claims: Sequence[PublishedCount]) -> list[dict[str, Any]]:
    """Return the JSON value of the key `claims`: an object for each published count."""
    objects: list[dict[str, Any]] = to_builtins([_copied(ClaimObject, one) for one in claims])
    return objects


def _copied(kind: type[_Object], of: object, **others: object) -> _Object:
    """Make a struct from the attributes of another object that have the names of its fields."""
    same = {name: getattr(of, name) for name in kind.__struct_fields__ if name not in others}
    return kind(**same, **others)


# --- from an outcome ------------------------------------------------------------------------------


def document_of(outcome: Report | Unaudited) -> Document:
    """Return the JSON object of an outcome as a struct."""
    report = outcome.load_report
    loading = _Loading(outcome.in_memory or {}, report.names if report else None)
    expected, cache, values = outcome.expected, outcome.kv_cache, outcome.values
    observed = outcome.observed
    return Document(
        **{name: getattr(outcome, name) for name in _SAME},
        expected=_copied(
            ExpectedObject,
            expected,
            legend=tuple(_copied(SymbolObject, symbol) for symbol in expected.legend),
            active=expected.active and expected.active.parameters,
        )
        if expected
        else ExpectedObject(),
        observed=_copied(
            ObservedObject,
            observed,
            by_dtype=dict(observed.by_dtype),
            weights=tuple(_copied(WeightsObject, weights) for weights in observed.weights),
        )
        if observed
        else ObservedObject(),
        modules=(*outcome.modules,),
        findings=tuple(recorded(finding, loading) for finding in outcome.findings),
        ignored=tuple(recorded(finding, loading) for finding in outcome.ignored),
        residual=outcome.residual if isinstance(outcome, Report) else None,
        verdict=outcome.verdict,
        reason=outcome.reason if isinstance(outcome, Unaudited) else None,
        detail=outcome.detail if isinstance(outcome, Unaudited) else None,
        fetched=_copied(FetchedObject, outcome.fetched),
        kv_cache=_copied(
            CacheObject, cache, layers=tuple(_copied(LayerObject, layer) for layer in cache.layers)
        )
        if cache
        else None,
        parts=tuple(map(document_of, outcome.parts)),
        load_report=outcome.load_report,
        diagnosis=tuple(map(_cause_object, outcome.diagnosis)),
        values=_copied(ValuesObject, values) if values else None,
        claims=tuple(_copied(ClaimObject, claim) for claim in outcome.claims),
        engines={
            one.engine: _copied(
                EngineObject, one, loads="unknown" if one.loads is None else one.loads
            )
            for one in outcome.engines
        },
    )


def _cause_object(cause: Diagnosis) -> CauseObject:
    fields: dict[str, Any] = {
        key: (finite(declared), finite(stored)) for key, declared, stored in cause.fields
    }
    for key, declared in cause.undetermined:
        fields[key] = UndeterminedObject(declared=finite(declared))
    return _copied(
        CauseObject,
        cause,
        fields=fields,
        alternatives=tuple(
            {key: finite(value) for key, value in values.items()} for values in cause.alternatives
        ),
    )


class _Loading(NamedTuple):
    """The names that from_pretrained gives to tensors in memory, and the names that it reports."""

    in_memory: Mapping[str, tuple[str, ...]]
    reported: frozenset[str] | None  # in-memory names that from_pretrained reports; None if unknown


def recorded(finding: Finding, loading: _Loading) -> RecordedFinding:
    """Return a finding as JSON has it."""
    if isinstance(finding, RecordedFinding):
        return finding
    names = finding.names
    if QuantizationData.describes(finding):
        names = tuple(sorted(names, key=natural_key))
    in_memory = silent = None
    if names and all(name in loading.in_memory for name in names):
        in_memory = tuple(loading.in_memory[name] for name in names)
        if (reported := loading.reported) is not None:
            silent = tuple(reported.isdisjoint(each) for each in in_memory)
    values = {
        "kind": finding.kind,
        "severity": finding.severity,
        "names": names,
        "folded": fold(names),
        "count": finding.count,
        "parameters": finding.parameters,
        "reason": finding.reason,
        "explains": finding.explains,
        "in_memory": in_memory,
        "silent": silent,
        **finding.evidence,
    }
    return convert(values, RecordedFinding)


# --- back -----------------------------------------------------------------------------------------


def outcome_from(document: Document) -> Report | Unaudited:
    """Return the outcome that a JSON object describes.

    It has no list of tensors and no cache, and its causes have no changes.
    """
    expected, observed, values = document.expected, document.observed, document.values
    common = Outcome(
        **{name: getattr(document, name) for name in _SAME},
        expected=_expected(expected) if expected else None,
        observed=_observed(observed) if observed else None,
        modules=document.modules,
        findings=document.findings,
        ignored=document.ignored,
        values=_copied(ValuesRead, values, fetched=Fetched()) if values else None,
        engines=tuple(
            _copied(
                EngineVerdict,
                one,
                engine=engine,
                loads=None if one.loads == "unknown" else one.loads,
            )
            for engine, one in document.engines.items()
        ),
        diagnosis=tuple(map(_cause, document.diagnosis)),
        claims=tuple(
            _copied(PublishedCount, one, reason="", usual=False) for one in document.claims
        ),
        load_report=document.load_report,
        parts=tuple(map(outcome_from, document.parts)),
    )
    if document.reason is not None:
        return common.as_unaudited(document.reason, document.detail or "")
    return common.as_report(document.residual)


def _expected(stored: ExpectedObject) -> Expected | None:
    if stored.parameters is None or stored.by is None:
        return None
    return Expected(
        by=stored.by,
        tensors=stored.tensors or 0,
        parameters=stored.parameters,
        formula=stored.formula or "",
        legend=tuple(Symbol(**asdict(symbol)) for symbol in stored.legend),
        library=stored.library,
    )


def _observed(stored: ObservedObject) -> Observed | None:
    if stored.tensors is None:
        return None
    return _copied(
        Observed,
        stored,
        files=stored.files or 0,
        by_dtype=tuple(stored.by_dtype.items()),
        weights=tuple(_copied(Weights, weights) for weights in stored.weights),
    )


def _cause(stored: CauseObject) -> Diagnosis:
    fields = stored.fields.items()
    return _copied(
        Diagnosis,
        stored,
        fields=tuple((key, *pair) for key, pair in fields if isinstance(pair, tuple)),
        undetermined=tuple(
            (key, value.declared) for key, value in fields if isinstance(value, UndeterminedObject)
        ),
        change=None,
        unwritten="",
        is_reading=False,
    )
