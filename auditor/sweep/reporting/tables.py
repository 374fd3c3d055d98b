"""models.csv, modules.csv and findings.csv of stored outcomes: the tables of `audit --format csv`.

The same columns and cells as formats.as_csv makes of reports, made of their JSON. Keys that an
older version did not write are empty cells.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.formats.as_csv import FINDINGS, MODELS, MODULES

Cell = str | int | float | None
Row = Mapping[str, Cell]
Outcome = Mapping[str, Any]  # the JSON object of one audit, schema 1

COLUMNS = {"models": MODELS, "modules": MODULES, "findings": FINDINGS}


def with_components(outcome: Outcome) -> tuple[Outcome, ...]:
    """The outcome and those of its parts, as `with_components` of a report."""
    return outcome, *(one for part in outcome.get("parts", ()) for one in with_components(part))


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
            yield {**{name: module.get(name) for name in MODULES}, **key}


def finding_rows(outcome: Outcome) -> Iterator[Row]:
    key = _key(outcome)
    for name, mark in (("findings", "no"), ("ignored", "yes")):
        for finding in outcome.get(name, ()):
            cells = {column: finding.get(column) for column in FINDINGS}
            yield {**cells, **key, "folded": "; ".join(finding["folded"]), "ignored": mark}


def _key(outcome: Outcome) -> Row:
    return {
        "model": outcome.get("model"),
        "commit_sha": outcome.get("commit"),
        "component": outcome.get("component"),
    }


def object_at(outcome: Outcome, name: str) -> Mapping[str, Any]:
    """An object within an outcome; empty where nothing is known."""
    return outcome.get(name) or {}
