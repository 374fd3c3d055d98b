"""The reader of an outcome's JSON, which a sweep stores: it returns what a page shows.

JSON does not contain the list of tensors, nor the shapes in findings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from auditor.errors import Reason
from auditor.findings import Finding, MissingComponent, Severity
from auditor.reconciler.rows import ModuleRow
from auditor.report import (
    Diagnosis,
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
        return self  # JSON has no parameters for a part of the names


def outcome_from(stored: _Object) -> Report | Unaudited:
    """Return an outcome; keys that an older version did not write are optional."""
    fields = ("model", "commit", "source", "origin", "target", "model_type", "component")
    texts: dict[str, Any] = {name: stored.get(name) for name in fields}
    known = Outcome(
        **texts,
        requested=stored["requested"],
        expected=_expected(stored.get("expected") or {}),
        observed=_observed(stored.get("observed") or {}),
        modules=tuple(_row(ModuleRow, row) for row in stored.get("modules", ())),
        findings=_findings(stored.get("findings", ())),
        ignored=_findings(stored.get("ignored", ())),
        diagnosis=tuple(map(_cause, stored.get("diagnosis", ()))),
        unchecked=tuple(stored.get("unchecked", ())),
        notes=tuple(stored.get("notes", ())),
        parts=tuple(map(outcome_from, stored.get("parts", ()))),
    )
    if reason := stored.get("reason"):
        return known.as_unaudited(Reason(reason), stored.get("detail") or "")
    return known.as_report(stored.get("residual"))


def _row(kind: Callable[..., _Row], stored: _Object) -> _Row:
    """Make a Struct or a NamedTuple of the stored keys that are its fields."""
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
            # The file of a missing component only declares it.
            file=None if one["kind"] == MissingComponent.kind else one.get("file"),
            evidence=one,
        )
        for one in stored
    )


def _cause(one: _Object) -> Diagnosis:
    fields: _Object = one.get("fields", {})
    return Diagnosis(
        cause=one["cause"],
        severity=Severity(one["severity"]),
        level=one.get("level", "headers"),
        summary=one["summary"],
        fix=one["fix"],
        fields=tuple((key, *pair) for key, pair in fields.items() if isinstance(pair, list)),
        undetermined=tuple(
            (key, value["declared"]) for key, value in fields.items() if isinstance(value, Mapping)
        ),
        findings=tuple(one["findings"]),
        evidence=tuple(one.get("evidence", ())),
    )


def _expected(one: _Object) -> Expected | None:
    if one.get("parameters") is None or not one.get("by"):
        return None
    return Expected(
        by=one["by"],
        tensors=one.get("tensors") or 0,
        parameters=one["parameters"],
        formula=one.get("formula") or "",
        legend=tuple(_row(Symbol, row) for row in one.get("legend", ())),
        library=one.get("library"),
    )


def _observed(one: _Object) -> Observed | None:
    if one.get("tensors") is None:
        return None
    counts = ("bytes", "tensors", "elements", "parameters", "trainable", "layout")
    known: dict[str, Any] = {name: one.get(name) for name in counts}
    return Observed(
        **known,
        files=one.get("files") or 0,
        by_dtype=tuple(one.get("by_dtype", {}).items()),
        by_file=tuple(_row(FileTally, row) for row in one.get("by_file", ())),
    )
