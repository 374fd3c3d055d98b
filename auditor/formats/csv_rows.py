"""The rows of the CSV tables of outcomes, models.csv and its kin, by column.

They are made of an outcome's JSON, of which a sweep keeps nothing else. Keys that an older version
did not write are empty cells.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from auditor.formats.csv_cells import WHOLE, Cell

Row = Mapping[str, Cell]
Columns = Mapping[str, type[str | int | float]]  # in their order, and what their cells hold
Outcome = Mapping[str, Any]  # the JSON object of one audit, schema 1

MODELS: Columns = {
    "requested": str,
    "model": str,
    "commit_sha": str,
    "source": str,
    "target": str,
    "model_type": str,
    "verdict": str,
    "reason": str,
    "detail": str,
    "expected": int,
    "elements": int,
    "parameters": int,
    "difference": int,
    "residual": int,
    "tensors": int,
    "files": int,
    "bytes": int,
    "errors": int,
    "warnings": int,
    "infos": int,
    "ignored": int,
    "unchecked": str,
    "requests": int,
    "fetched_bytes": int,
    "trainable": int,
    "expected_by": str,
    "formula": str,
    "origin": str,
    "component": str,
}
MODULES: Columns = {
    "model": str,
    "commit_sha": str,
    "prefix": str,
    "depth": int,
    "tensors": int,
    "elements": int,
    "parameters": int,
    "expected": int,
    "difference": int,
    "status": str,
    "formula": str,
    "trainable": int,
    "bytes": int,
    "share": float,
    "component": str,
}
FINDINGS: Columns = {
    "model": str,
    "commit_sha": str,
    "kind": str,
    "severity": str,
    "count": int,
    "parameters": int,
    "explains": int,
    "folded": str,
    "reason": str,
    "ignored": str,
    "file": str,
    "component": str,
    "cause": str,
}
DIAGNOSIS: Columns = {
    "model": str,
    "commit_sha": str,
    "cause": str,
    "severity": str,
    "level": str,
    "summary": str,
    "fix": str,
    "fields": str,
    "findings": int,
    "kinds": str,
    "evidence": str,
    "component": str,
}
COLUMNS: Mapping[str, Columns] = {
    "models": MODELS,
    "modules": MODULES,
    "findings": FINDINGS,
    "diagnosis": DIAGNOSIS,
}


def with_components(outcome: Outcome) -> tuple[Outcome, ...]:
    """The outcome and those of its parts, as `with_components` of a report."""
    return outcome, *(one for part in outcome.get("parts", ()) for one in with_components(part))


def rows_of(outcome: Outcome, depth: int | None = None) -> Iterator[tuple[str, Iterable[Row]]]:
    """Table by table, the rows of an outcome without its parts; those of modules to a depth."""
    yield "models", (model_row(outcome),)
    yield "modules", module_rows(outcome, depth)
    yield "findings", finding_rows(outcome)
    yield "diagnosis", diagnosis_rows(outcome)


def model_row(outcome: Outcome) -> Row:
    observed, expected = object_at(outcome, "observed"), object_at(outcome, "expected")
    fetched = object_at(outcome, "fetched")
    found = (finding for one in with_components(outcome) for finding in one.get("findings", ()))
    severities = Counter(finding["severity"] for finding in found)
    stored, implied = observed.get("parameters"), expected.get("parameters")
    return {
        **{name: outcome.get(name) for name in MODELS},
        **_key(outcome),
        "expected": implied,
        **{name: observed.get(name) for name in _OBSERVED},
        "difference": None if stored is None or implied is None else stored - implied,
        "errors": severities["error"],
        "warnings": severities["warning"],
        "infos": severities["info"],
        "ignored": len(outcome.get("ignored", ())),
        "unchecked": "; ".join(outcome.get("unchecked", ())),
        "requests": fetched.get("requests"),
        "fetched_bytes": fetched.get("bytes"),
        "expected_by": expected.get("by"),
        "formula": expected.get("formula"),
    }


_OBSERVED = ("elements", "parameters", "tensors", "files", "bytes", "trainable")


def module_rows(outcome: Outcome, depth: int | None = None) -> Iterator[Row]:
    key = _key(outcome)
    for module in outcome.get("modules", ()):
        if depth is None or module["depth"] <= depth:
            named = {"prefix": module["prefix"] or WHOLE}
            yield {**{name: module.get(name) for name in MODULES}, **key, **named}


def finding_rows(outcome: Outcome) -> Iterator[Row]:
    key = _key(outcome)
    for name, mark in (("findings", "no"), ("ignored", "yes")):
        for at, finding in enumerate(outcome.get(name, ())):
            cells = {column: finding.get(column) for column in FINDINGS}
            cause = causes_of(outcome, at) if name == "findings" else ""
            folded = "; ".join(finding["folded"])
            yield {**cells, **key, "folded": folded, "ignored": mark, "cause": cause}


def causes_of(outcome: Outcome, at: int) -> str:
    """The causes that explain a finding, which is given by its place."""
    known = outcome.get("diagnosis", ())
    return "; ".join(one["cause"] for one in known if at in one["findings"])


def diagnosis_rows(outcome: Outcome) -> Iterator[Row]:
    key = _key(outcome)
    for one in outcome.get("diagnosis", ()):
        kinds = dict.fromkeys(outcome["findings"][at]["kind"] for at in one["findings"])
        yield {
            **{name: one.get(name) for name in ("cause", "severity", "level", "summary", "fix")},
            **key,
            "fields": json.dumps(one["fields"]) if one.get("fields") else None,
            "findings": len(one["findings"]),
            "kinds": "; ".join(kinds),
            "evidence": "; ".join(one.get("evidence", ())),
        }


def _key(outcome: Outcome) -> Row:
    return {
        "model": outcome.get("model"),
        "commit_sha": outcome.get("commit"),
        "component": outcome.get("component"),
    }


def object_at(outcome: Outcome, name: str) -> Mapping[str, Any]:
    """An object within an outcome; empty where nothing is known."""
    return outcome.get(name) or {}
