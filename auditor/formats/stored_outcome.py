"""Decode the JSON of an outcome, which a sweep stores, for the formats.

The JSON does not contain the list of tensors, nor the shapes in findings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from auditor.errors import Reason
from auditor.findings import Finding, MissingComponent, Severity
from auditor.reconciler.rows import ModuleRow
from auditor.report import (
    Diagnosis,
    EngineVerdict,
    Expected,
    FileTally,
    Observed,
    Outcome,
    Report,
    Symbol,
    Unaudited,
)

_Object = Mapping[str, Any]
_Row = TypeVar("_Row")


class StoredFinding(Finding, frozen=True, kw_only=True):
    """A finding of any kind, in its JSON form."""

    kind: str
    severity: Severity
    names: tuple[str, ...]
    count: int
    parameters: int
    explains: int
    file: str | None
    evidence: _Object  # all keys of the finding

    def only(self, _wanted: Callable[[str], bool]) -> Self:
        return self  # the JSON has no parameter counts for a subset of the names


def outcome_from(stored: _Object) -> Report | Unaudited:
    """Decode the JSON object of an outcome; keys unknown to older versions may be absent."""
    fields = ("model", "commit", "source", "origin", "target", "model_type", "component")
    texts: dict[str, Any] = {name: stored.get(name) for name in fields}
    common = Outcome(
        **texts,
        requested=stored["requested"],
        expected=_expected(stored.get("expected") or {}),
        observed=_observed(stored.get("observed") or {}),
        modules=tuple(_row(ModuleRow, row) for row in stored.get("modules", ())),
        findings=_findings(stored.get("findings", ())),
        ignored=_findings(stored.get("ignored", ())),
        engines=tuple(_engine(*pair) for pair in stored.get("engines", {}).items()),
        diagnosis=tuple(map(_cause, stored.get("diagnosis", ()))),
        companions=tuple(stored["companions"]) if stored.get("companions") else None,
        unchecked=tuple(stored.get("unchecked", ())),
        notes=tuple(stored.get("notes", ())),
        parts=tuple(map(outcome_from, stored.get("parts", ()))),
    )
    if reason := stored.get("reason"):
        return common.as_unaudited(Reason(reason), stored.get("detail") or "")
    return common.as_report(stored.get("residual"))


def _row(kind: Callable[..., _Row], stored: _Object) -> _Row:
    """Make a `kind` (a Struct or a NamedTuple) from the stored values of its fields."""
    names: Sequence[str] = getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))
    return kind(**{name: stored.get(name) for name in names})


def _findings(stored: Sequence[_Object]) -> tuple[Finding, ...]:
    return tuple(
        StoredFinding(
            kind=one["kind"],
            severity=Severity(one["severity"]),
            names=tuple(one.get("names", one["folded"])),
            count=one["count"],
            parameters=one["parameters"],
            explains=one.get("explains", 0),
            reason=one["reason"],
            # The finding's file only declares the missing component.
            file=None if one["kind"] == MissingComponent.kind else one.get("file"),
            evidence=one,
        )
        for one in stored
    )


def _cause(stored: _Object) -> Diagnosis:
    fields: _Object = stored.get("fields", {})
    return Diagnosis(
        cause=stored["cause"],
        severity=Severity(stored["severity"]),
        level=stored.get("level", "headers"),
        summary=stored["summary"],
        explains=stored.get("explains", ""),
        fix=stored["fix"],
        fields=tuple((key, *pair) for key, pair in fields.items() if isinstance(pair, list)),
        undetermined=tuple(
            (key, value["declared"]) for key, value in fields.items() if isinstance(value, Mapping)
        ),
        alternatives=tuple(stored.get("alternatives", ())),
        findings=tuple(stored["findings"]),
        evidence=tuple(stored.get("evidence", ())),
        remaining=stored.get("remaining"),
    )


def _engine(engine: str, stored: _Object) -> EngineVerdict:
    return EngineVerdict(
        engine=engine,
        version=stored["version"],
        date=stored["date"],
        loads=stored["loads"] if isinstance(stored["loads"], bool) else None,
        reasons=tuple(stored["reasons"]),
        additions=stored["additions"],
        scheme=stored.get("scheme"),
    )


def _expected(stored: _Object) -> Expected | None:
    if stored.get("parameters") is None or not stored.get("by"):
        return None
    return Expected(
        by=stored["by"],
        tensors=stored.get("tensors") or 0,
        parameters=stored["parameters"],
        formula=stored.get("formula") or "",
        legend=tuple(_row(Symbol, row) for row in stored.get("legend", ())),
        library=stored.get("library"),
    )


def _observed(stored: _Object) -> Observed | None:
    if stored.get("tensors") is None:
        return None
    counts = ("bytes", "tensors", "elements", "parameters", "trainable", "layout")
    texts: dict[str, Any] = {name: stored.get(name) for name in counts}
    return Observed(
        **texts,
        files=stored.get("files") or 0,
        by_dtype=tuple(stored.get("by_dtype", {}).items()),
        by_file=tuple(_row(FileTally, row) for row in stored.get("by_file", ())),
    )
