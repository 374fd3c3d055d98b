"""An outcome as JSON in the format of schema 1 (report.schema.json). Keys are only ever added."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec.json

from auditor.claims.verdict import PublishedCount
from auditor.findings import Finding, QuantizationData
from auditor.formats import View
from auditor.formats.json_values import finite, json_text
from auditor.reconciler.fold import fold
from auditor.reconciler.loading.report import LoadReport
from auditor.reconciler.tensor_values import BaseComparison, ValuesRead
from auditor.redaction import masked
from auditor.report import Diagnosis, EngineVerdict, Expected, KVCache, Observed, Report, Unaudited
from auditor.tensors import natural_key

SCHEMA = 1

# Keys of JSON objects; each is the name of an attribute.
_COUNTS = ("files", "bytes", "tensors", "elements", "parameters", "trainable")
_WEIGHTS = ("dtype", "tensors", "parameters", "bytes", "bits_per_parameter")
_SYMBOL = ("letter", "key", "value", "default", "formula")
_CLAIM = ("where", "key", "text", "claim", "verdict", "actual")


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one file, with a line for each outcome."""
    return {"report.jsonl": "".join(f"{render(outcome)}\n" for outcome in outcomes)}


def render(outcome: Report | Unaudited) -> str:
    """Encode an outcome as one object on one line, in ASCII."""
    return json_text(as_object(outcome))


def stored_text(outcome: Report | Unaudited) -> bytes:
    """Encode an outcome as UTF-8 without spaces, eight times faster than `render`."""
    try:
        return masked(msgspec.json.encode(_as_written(outcome)))
    except UnicodeEncodeError:  # a name contains a lone surrogate, which UTF-8 cannot encode
        return render(outcome).encode()


def as_object(outcome: Report | Unaudited) -> dict[str, Any]:
    """Return the JSON object of an outcome."""
    document: dict[str, Any] = msgspec.to_builtins(_as_written(outcome))
    return document


def _as_written(outcome: Report | Unaudited) -> dict[str, Any]:
    """Return the object to encode, in which rows of modules, files and numbers stay Structs."""
    loading = _Loading(outcome.in_memory or {}, outcome.load_report and outcome.load_report.names)
    return {
        "schema": SCHEMA,
        "requested": outcome.requested,
        "model": outcome.model,
        "commit": outcome.commit,
        "source": outcome.source,
        "target": outcome.target,
        "model_type": outcome.model_type,
        "expected": _expected(outcome.expected),
        "observed": _observed(outcome.observed),
        "modules": (*outcome.modules,),
        "findings": [_finding(finding, loading) for finding in outcome.findings],
        "residual": outcome.residual if isinstance(outcome, Report) else None,
        "verdict": outcome.verdict,
        "reason": None if isinstance(outcome, Report) else outcome.reason,
        "fetched": {
            "requests": outcome.fetched.requests,
            "bytes": outcome.fetched.bytes,
            "seconds": outcome.fetched.seconds,
        },
        "detail": None if isinstance(outcome, Report) else outcome.detail,
        "origin": outcome.origin,
        "declared": outcome.declared,
        "unchecked": outcome.unchecked,
        "notes": outcome.notes,
        "ignored": [_finding(finding, loading) for finding in outcome.ignored],
        "kv_cache": _kv_cache(outcome.kv_cache),
        "component": outcome.component,
        "parts": [_as_written(part) for part in outcome.parts],
        "companions": outcome.companions,
        "load_report": _load_report(outcome.load_report),
        "diagnosis": [_diagnosis(one) for one in outcome.diagnosis],
        "values": _values(outcome.values),
        "claims": claims_object(outcome.claims),
        "engines": {one.engine: _engine(one) for one in outcome.engines},
    }


def claims_object(claims: Sequence[PublishedCount]) -> list[dict[str, Any]]:
    """Return the JSON value of the key `claims`: an object for each published count."""
    return [_fields(one, _CLAIM) for one in claims]


def _engine(verdict: EngineVerdict) -> dict[str, Any]:
    return {
        "loads": "unknown" if verdict.loads is None else verdict.loads,
        "reasons": verdict.reasons,
        "additions": verdict.additions,
        "scheme": verdict.scheme,
        "version": verdict.version,
        "date": verdict.date,
    }


def _fields(of: object, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(of, key) for key in keys}


def _values(values: ValuesRead | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {
        "bytes": values.bytes,
        "of": values.of,
        "of_tensors": values.of_tensors,
        "sampled": values.sampled,
        "base": values.base and _base(values.base),
        "tensors": values.tensors,
    }


def _base(base: BaseComparison) -> dict[str, Any]:
    return {
        "model": base.model,
        "commit_sha": base.commit,
        "unchanged": base.unchanged,
        "changed": base.changed,
        "uncompared": base.uncompared,
        "modules": [module._asdict() for module in base.modules],
    }


def _diagnosis(cause: Diagnosis) -> dict[str, Any]:
    return {
        "cause": cause.cause,
        "severity": cause.severity,
        "level": cause.level,
        "summary": cause.summary,
        "explains": cause.explains,
        "fix": cause.fix,
        "fields": {
            **{key: [finite(declared), finite(stored)] for key, declared, stored in cause.fields},
            **{
                key: {"declared": finite(declared), "determined": False}
                for key, declared in cause.undetermined
            },
        },
        "alternatives": [
            {key: finite(value) for key, value in values.items()} for values in cause.alternatives
        ],
        "findings": cause.findings,
        "evidence": cause.evidence,
        "remaining": cause.remaining,
    }


def _load_report(report: LoadReport | None) -> dict[str, Any] | None:
    """Return what from_pretrained(output_loading_info=True) would report; None if unknown."""
    if report is None:
        return None
    return {
        "missing_keys": report.missing,
        "unexpected_keys": report.unexpected,
        "mismatched_keys": report.mismatched,
        "raises": report.raises,
    }


def _kv_cache(cache: KVCache | None) -> dict[str, Any] | None:
    if cache is None:
        return None
    return {
        "elements_per_token": cache.per_token,
        "states": cache.states,
        "wide_states": cache.wide_states,
        "cross_per_token": cache.cross,
        "frames": cache.frames,
        "layers": [one._asdict() for one in cache.layers],
    }


def modules_object(outcome: Report | Unaudited) -> dict[str, Any]:
    """Return the part of the JSON object that module_tree.modules_of reads."""
    return {
        "component": outcome.component,
        "expected": _expected(outcome.expected),
        "observed": msgspec.to_builtins(_observed(outcome.observed)),
        "modules": msgspec.to_builtins((*outcome.modules,)),
        "parts": [modules_object(part) for part in outcome.parts],
    }


def _expected(expected: Expected | None) -> dict[str, Any]:
    if expected is None:
        unknown = dict.fromkeys(("by", "parameters", "formula", "tensors"))
        return {**unknown, "legend": [], "active": None, "library": None}
    return {
        "by": expected.by,
        "parameters": expected.parameters,
        "formula": expected.formula,
        "tensors": expected.tensors,
        "legend": [_fields(symbol, _SYMBOL) for symbol in expected.legend],
        "active": expected.active.parameters if expected.active else None,
        "library": expected.library,
    }


def _observed(observed: Observed | None) -> dict[str, Any]:
    if observed is None:
        empty: dict[str, Any] = {"by_dtype": {}, "by_file": [], "layout": None, "weights": []}
        return dict.fromkeys(_COUNTS) | empty
    return _fields(observed, _COUNTS) | {
        "by_dtype": dict(observed.by_dtype),
        "by_file": observed.by_file,
        "layout": observed.layout,
        "weights": [_fields(weights, _WEIGHTS) for weights in observed.weights],
    }


class _Loading(NamedTuple):
    """The names that from_pretrained gives to tensors in memory, and the names that it reports."""

    in_memory: Mapping[str, tuple[str, ...]]
    reported: frozenset[str] | None  # in-memory names that from_pretrained reports; None if unknown


def _finding(finding: Finding, loading: _Loading) -> dict[str, Any]:
    names = finding.names
    if QuantizationData.describes(finding):
        names = tuple(sorted(names, key=natural_key))
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "names": names,
        "folded": fold(names),
        "count": finding.count,
        "parameters": finding.parameters,
        "reason": finding.reason,
        "explains": finding.explains,
        **_names_in_memory(names, loading),
        **finding.evidence,
    }


def _names_in_memory(names: tuple[str, ...], loading: _Loading) -> dict[str, Any]:
    """Return the JSON keys `in_memory` and `silent` for names of stored tensors.

    `in_memory` lists the in-memory names of each stored tensor. `silent` has a flag for each stored
    tensor: true if from_pretrained reports none of its in-memory names. A value is None if unknown.
    """
    if not names or not all(name in loading.in_memory for name in names):
        return {"in_memory": None, "silent": None}
    in_memory = [loading.in_memory[name] for name in names]
    reported = loading.reported
    silent = None if reported is None else [reported.isdisjoint(each) for each in in_memory]
    return {"in_memory": in_memory, "silent": silent}
