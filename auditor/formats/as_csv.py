"""The CSV tables models, modules, findings and diagnosis; the module `tensor_table` has tensors.

The tables are made from an outcome's JSON, because a sweep stores nothing else; keys that an older
version did not write are empty cells. They follow RFC 4180, but lines end with LF, because the
tables are committed and compared by git. Columns are only ever added, at the end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from auditor.formats import View
from auditor.formats.as_json import as_object
from auditor.formats.escapes import WHOLE, Cell, csv_row, csv_text
from auditor.report import Report, Unaudited

Row = Mapping[str, Cell]
Columns = Mapping[str, type[str | int | float]]  # the types of cells, in the order of columns
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
    "engines": str,
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


def files(outcomes: Sequence[Report | Unaudited], view: View | None = None) -> dict[str, str]:
    """Map file names to tables, to be written as UTF-8 without translating line ends.

    If a repository has several models, its own rows come first, then the rows of each model. Text
    for standard output has only the table of modules.
    """
    names = ("modules",) if view is not None and view.printed else COLUMNS
    objects = [part for outcome in outcomes for part in with_components(as_object(outcome))]
    tables = {}
    for name in names:
        columns = tuple(COLUMNS[name])
        rows = (csv_row(row, columns) for row in _rows(name, objects))
        tables[f"{name}.csv"] = csv_text((columns, *rows))
    return tables


def table_of(
    outcome: Report | Unaudited, name: str
) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """Return the columns and the rows of one table, for an outcome and its components.

    A row is a tuple of values that are not escaped.
    """
    columns, rows = tuple(COLUMNS[name]), _rows(name, with_components(as_object(outcome)))
    return columns, [tuple(row[column] for column in columns) for row in rows]


def _rows(name: str, outcomes: Iterable[Outcome]) -> Iterator[Row]:
    for table, rows in chain.from_iterable(map(rows_of, outcomes)):
        if table == name:
            yield from rows


def with_components(outcome: Outcome) -> tuple[Outcome, ...]:
    """Return the outcome and its components, as `Report.every` does."""
    return outcome, *(one for part in outcome.get("parts", ()) for one in with_components(part))


def rows_of(outcome: Outcome, depth: int | None = None) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield the name and the rows of each table for an outcome without its components.

    Modules below level `depth` are left out.
    """
    yield "models", (model_row(outcome),)
    yield "modules", module_rows(outcome, depth)
    yield "findings", finding_rows(outcome)
    yield "diagnosis", diagnosis_rows(outcome)


def model_row(outcome: Outcome) -> Row:
    observed, expected = object_at(outcome, "observed"), object_at(outcome, "expected")
    fetched = object_at(outcome, "fetched")
    severities = Counter(
        finding["severity"]
        for part in with_components(outcome)
        for finding in part.get("findings", ())
    )
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
        "engines": "; ".join(
            f"{engine}: {_LOADS[verdict['loads']]}"
            for engine, verdict in outcome.get("engines", {}).items()
        ),
    }


_LOADS = {True: "loads", False: "refuses", "unknown": "unknown"}
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
    """Return the names of the causes that explain the finding with index `at`, joined by "; "."""
    causes = outcome.get("diagnosis", ())
    return "; ".join(cause["cause"] for cause in causes if at in cause["findings"])


def diagnosis_rows(outcome: Outcome) -> Iterator[Row]:
    key = _key(outcome)
    for cause in outcome.get("diagnosis", ()):
        kinds = dict.fromkeys(outcome["findings"][at]["kind"] for at in cause["findings"])
        yield {
            **{name: cause.get(name) for name in ("cause", "severity", "level", "summary", "fix")},
            **key,
            "fields": json.dumps(cause["fields"]) if cause.get("fields") else None,
            "findings": len(cause["findings"]),
            "kinds": "; ".join(kinds),
            "evidence": "; ".join(cause.get("evidence", ())),
        }


def _key(outcome: Outcome) -> Row:
    return {
        "model": outcome.get("model"),
        "commit_sha": outcome.get("commit"),
        "component": outcome.get("component"),
    }


def object_at(outcome: Outcome, name: str) -> Mapping[str, Any]:
    """Return the JSON object under a key of an outcome; {} if the key is absent or null."""
    return outcome.get(name) or {}
