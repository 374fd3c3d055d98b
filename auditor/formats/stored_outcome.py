"""The reader of an outcome's JSON, which a sweep stores: it returns all that a page shows.

JSON does not contain the list of tensors, nor the shapes in findings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

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


class StoredFinding(Finding, frozen=True, kw_only=True):
    """A finding of any kind, as JSON has it."""

    kind: str
    severity: Severity
    names: tuple[str, ...]
    count: int
    parameters: int
    explains: int
    file: str | None
    evidence: _Object  # every key of the finding

    def only(self, _wanted: Callable[[str], bool]) -> Self:
        return self  # JSON has no parameters for a part of the names


def outcome_from(stored: _Object) -> Report | Unaudited:
    """Return the outcome of one audit; keys that an older version did not write are optional."""
    known = Outcome(
        requested=stored["requested"],
        model=stored.get("model"),
        commit=stored.get("commit"),
        source=stored.get("source"),
        origin=stored.get("origin"),
        target=stored.get("target"),
        model_type=stored.get("model_type"),
        expected=_expected(stored.get("expected") or {}),
        observed=_observed(stored.get("observed") or {}),
        modules=tuple(_module(row) for row in stored.get("modules", ())),
        findings=_findings(stored.get("findings", ())),
        ignored=_findings(stored.get("ignored", ())),
        diagnosis=tuple(_cause(one) for one in stored.get("diagnosis", ())),
        unchecked=tuple(stored.get("unchecked", ())),
        notes=tuple(stored.get("notes", ())),
        component=stored.get("component"),
        parts=tuple(outcome_from(part) for part in stored.get("parts", ())),
    )
    if reason := stored.get("reason"):
        return known.as_unaudited(Reason(reason), stored.get("detail") or "")
    return known.as_report(stored.get("residual"))


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
    fields = one.get("fields", {}).items()
    return Diagnosis(
        cause=one["cause"],
        severity=Severity(one["severity"]),
        level=one.get("level", "headers"),
        summary=one["summary"],
        fix=one["fix"],
        fields=tuple((key, said, found) for key, (said, found) in fields),
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
        legend=tuple(
            Symbol(**{key: row.get(key) for key in Symbol._fields}) for row in one.get("legend", ())
        ),
        library=one.get("library"),
    )


def _observed(one: _Object) -> Observed | None:
    if one.get("tensors") is None:
        return None
    counts = ("bytes", "tensors", "elements", "parameters", "trainable")
    known: dict[str, Any] = {name: one.get(name) for name in counts}
    files = one.get("by_file", ())
    return Observed(
        **known,
        files=one.get("files") or 0,
        by_dtype=tuple(one.get("by_dtype", {}).items()),
        by_file=tuple(
            FileTally(**{key: row.get(key) for key in FileTally.__struct_fields__}) for row in files
        ),
        layout=one.get("layout"),
    )


def _module(row: _Object) -> ModuleRow:
    known: dict[str, Any] = {key: row.get(key) for key in ModuleRow.__struct_fields__}
    return ModuleRow(**known)
