"""The CSV tables: models, modules, findings and diagnosis; tensor_table has the fifth.

RFC 4180 but for the line ends, which are LF: the tables are committed and compared by git. UTF-8.
Nothing known is an empty cell. Columns are only ever added, at the end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from auditor.formats import View
from auditor.formats.csv_cells import WHOLE, Cell, csv_row, csv_text
from auditor.formats.json_values import finite
from auditor.reconciler.findings import Severity, count_of
from auditor.reconciler.fold import fold
from auditor.report import Report, Unaudited

MODELS = (
    "requested",
    "model",
    "commit_sha",
    "source",
    "target",
    "model_type",
    "verdict",
    "reason",
    "detail",
    "expected",
    "elements",
    "parameters",
    "difference",
    "residual",
    "tensors",
    "files",
    "bytes",
    "errors",
    "warnings",
    "infos",
    "ignored",
    "unchecked",
    "requests",
    "fetched_bytes",
    "trainable",
    "expected_by",
    "formula",
    "origin",
    "component",
)
MODULES = (
    "model",
    "commit_sha",
    "prefix",
    "depth",
    "tensors",
    "elements",
    "parameters",
    "expected",
    "difference",
    "status",
    "formula",
    "trainable",
    "bytes",
    "share",
    "component",
)
FINDINGS = (
    "model",
    "commit_sha",
    "kind",
    "severity",
    "count",
    "parameters",
    "explains",
    "folded",
    "reason",
    "ignored",
    "file",
    "component",
    "cause",
)
DIAGNOSIS = (
    "model",
    "commit_sha",
    "cause",
    "severity",
    "level",
    "summary",
    "fix",
    "fields",
    "findings",
    "kinds",
    "evidence",
    "component",
)


def files(outcomes: Sequence[Report | Unaudited], view: View | None = None) -> dict[str, str]:
    """The tables by file name, to be written as UTF-8 without translating line ends.

    After the rows of a repository of several models come those of each, which add up to them.
    """
    outcomes = [one for outcome in outcomes for one in outcome.every]
    modules = _table(MODULES, (row for one in outcomes for row in _modules(one)))
    if view is not None and view.printed:
        return {"modules.csv": modules}
    return {
        "models.csv": _table(MODELS, (_model(outcome) for outcome in outcomes)),
        "modules.csv": modules,
        "findings.csv": _table(FINDINGS, (row for one in outcomes for row in _findings(one))),
        "diagnosis.csv": _table(DIAGNOSIS, (row for one in outcomes for row in _diagnosis(one))),
    }


def table_of(
    outcome: Report | Unaudited, name: str
) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """The columns and the rows of one table as values, of an outcome and of its parts."""
    columns, rows = {"findings": (FINDINGS, _findings), "diagnosis": (DIAGNOSIS, _diagnosis)}[name]
    every = (row for one in outcome.every for row in rows(one))
    return columns, [tuple(row[column] for column in columns) for row in every]


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> str:
    return csv_text((columns, *(csv_row(row, columns) for row in rows)))


def yes_or_no(cell: Cell) -> Cell:
    """A flag as a word; every other cell as it is."""
    return ("no", "yes")[cell] if isinstance(cell, bool) else cell


def _model(outcome: Report | Unaudited) -> dict[str, Cell]:
    observed, expected = outcome.observed, outcome.expected
    found = (finding for one in outcome.every for finding in one.findings)
    severities = Counter(finding.severity for finding in found)
    stored = observed.parameters if observed else None
    return {
        "requested": outcome.requested,
        "model": outcome.model,
        "commit_sha": outcome.commit,
        "source": outcome.source,
        "target": outcome.target,
        "model_type": outcome.model_type,
        "verdict": outcome.verdict,
        "reason": None if isinstance(outcome, Report) else outcome.reason,
        "detail": None if isinstance(outcome, Report) else outcome.detail,
        "expected": expected.parameters if expected else None,
        "elements": observed.elements if observed else None,
        "parameters": stored,
        "difference": None if stored is None or not expected else stored - expected.parameters,
        "residual": outcome.residual if isinstance(outcome, Report) else None,
        "tensors": observed.tensors if observed else None,
        "files": observed.files if observed else None,
        "bytes": observed.bytes if observed else None,
        "errors": severities[Severity.ERROR],
        "warnings": severities[Severity.WARNING],
        "infos": severities[Severity.INFO],
        "ignored": len(outcome.ignored),
        "unchecked": "; ".join(outcome.unchecked),
        "requests": outcome.fetched.requests,
        "fetched_bytes": outcome.fetched.bytes,
        "trainable": observed.trainable if observed else None,
        "expected_by": expected.by if expected else None,
        "formula": expected.formula if expected else None,
        "origin": outcome.origin,
        "component": outcome.component,
    }


def _modules(outcome: Report | Unaudited) -> Iterator[dict[str, Cell]]:
    for row in outcome.modules:
        yield {
            "model": outcome.model,
            "commit_sha": outcome.commit,
            "prefix": row.prefix or WHOLE,
            "depth": row.depth,
            "tensors": row.tensors,
            "elements": row.elements,
            "parameters": row.parameters,
            "expected": row.expected,
            "difference": row.difference,
            "status": row.status,
            "formula": row.formula,
            "trainable": row.trainable,
            "bytes": row.bytes,
            "share": row.share,
            "component": outcome.component,
        }


def _findings(outcome: Report | Unaudited) -> Iterator[dict[str, Cell]]:
    """Ignored ones too, and marked: only with them does `explains` add up to the difference."""
    for at, finding in enumerate((*outcome.findings, *outcome.ignored)):
        yield {
            "model": outcome.model,
            "commit_sha": outcome.commit,
            "kind": finding.kind,
            "severity": finding.severity,
            "count": count_of(finding),
            "parameters": finding.parameters,
            "explains": finding.explains,
            "folded": "; ".join(fold(finding.names)),
            "reason": finding.reason,
            "ignored": "yes" if at >= len(outcome.findings) else "no",
            "file": getattr(finding, "file", None),
            "component": outcome.component,
            "cause": "; ".join(one.cause for one in outcome.diagnosis if at in one.findings),
        }


def _diagnosis(outcome: Report | Unaudited) -> Iterator[dict[str, Cell]]:
    for one in outcome.diagnosis:
        fields = {key: [finite(said), finite(found)] for key, said, found in one.fields}
        kinds = dict.fromkeys(outcome.findings[at].kind for at in one.findings)
        yield {
            "model": outcome.model,
            "commit_sha": outcome.commit,
            "cause": one.cause,
            "severity": one.severity,
            "level": one.level,
            "summary": one.summary,
            "fix": one.fix,
            "fields": json.dumps(fields) if fields else None,
            "findings": len(one.findings),
            "kinds": "; ".join(kinds),
            "evidence": "; ".join(one.evidence),
            "component": outcome.component,
        }
