"""The CSV tables models, modules, findings and diagnosis; the module `tensor_table` has tensors.

The tables are made from an outcome's JSON, because a sweep stores nothing else. They follow RFC
4180, but lines end with LF, because the tables are committed and compared by git. Columns are only
ever added, at the end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from auditor.findings import Severity
from auditor.formats import View
from auditor.formats.as_json import document_of
from auditor.formats.document import Document, ExpectedObject, ObservedObject
from auditor.formats.escapes import WHOLE, Cell, csv_row, csv_text
from auditor.report import Report, Unaudited

Row = Mapping[str, Cell]
Columns = Mapping[str, type[str | int | float]]  # the types of cells, in the order of columns


def columns_of(names: str) -> Columns:
    """Return columns by their names; `#` marks integers, `%` fractions, and others are text."""
    kinds: Mapping[str, type[str | int | float]] = {"#": int, "%": float}
    return {name.rstrip("#%"): kinds.get(name[-1], str) for name in names.split()}


MODELS = columns_of(
    "requested model commit_sha source target model_type verdict reason detail expected# "
    "elements# parameters# difference# residual# tensors# files# bytes# errors# warnings# infos# "
    "ignored# unchecked requests# fetched_bytes# trainable# expected_by formula origin component "
    "engines fix_command auditor audited_on"
)
MODULES = columns_of(
    "model commit_sha prefix depth# tensors# elements# parameters# expected# difference# status "
    "formula trainable# bytes# share% component"
)
FINDINGS = columns_of(
    "model commit_sha kind severity count# parameters# explains# folded reason ignored file "
    "component cause"
)
DIAGNOSIS = columns_of(
    "model commit_sha cause severity level summary fix fields findings# kinds evidence component"
)
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
    documents = [part for outcome in outcomes for part in document_of(outcome).every]
    view = view or View()
    made = [replace(one, auditor=view.auditor, audited_on=view.date) for one in documents]
    documents = made if view.auditor else documents
    tables = {}
    for name in names:
        columns = tuple(COLUMNS[name])
        rows = (csv_row(row, columns) for row in _rows(name, documents))
        tables[f"{name}.csv"] = csv_text((columns, *rows))
    return tables


def table_of(
    outcome: Report | Unaudited, name: str
) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """Return the columns and the rows of one table, for an outcome and its components.

    A row is a tuple of values that are not escaped.
    """
    columns, rows = tuple(COLUMNS[name]), _rows(name, document_of(outcome).every)
    return columns, [tuple(row[column] for column in columns) for row in rows]


def _rows(name: str, documents: Iterable[Document]) -> Iterator[Row]:
    for table, rows in chain.from_iterable(map(rows_of, documents)):
        if table == name:
            yield from rows


def rows_of(document: Document, depth: int | None = None) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield the name and the rows of each table for an outcome without its components.

    Modules below level `depth` are left out.
    """
    yield "models", (_model_row(document),)
    yield "modules", _module_rows(document, depth)
    yield "findings", _finding_rows(document)
    yield "diagnosis", _diagnosis_rows(document)


def _model_row(document: Document) -> Row:
    observed = document.observed or ObservedObject()
    expected = document.expected or ExpectedObject()
    severities = Counter(finding.severity for part in document.every for finding in part.findings)
    stored, implied = observed.parameters, expected.parameters
    engines = document.engines.items()
    return {
        **_cells(document, MODELS),
        **_cells(observed, ("elements", "parameters", "tensors", "files", "bytes", "trainable")),
        **_key(document),
        "expected": implied,
        "difference": None if stored is None or implied is None else stored - implied,
        "errors": severities[Severity.ERROR],
        "warnings": severities[Severity.WARNING],
        "infos": severities[Severity.INFO],
        "ignored": len(document.ignored),
        "unchecked": "; ".join(document.unchecked),
        "requests": document.fetched.requests,
        "fetched_bytes": document.fetched.bytes,
        "expected_by": expected.by,
        "formula": expected.formula,
        "fix_command": document.fix_command and document.fix_command.command,
        "engines": "; ".join(f"{engine}: {_LOADS[verdict.loads]}" for engine, verdict in engines),
    }


_LOADS = {True: "loads", False: "refuses", "unknown": "unknown"}


def _module_rows(document: Document, depth: int | None = None) -> Iterator[Row]:
    key = _key(document)
    for module in document.modules:
        if depth is None or module.depth <= depth:
            yield {**_cells(module, MODULES), **key, "prefix": module.prefix or WHOLE}


def _finding_rows(document: Document) -> Iterator[Row]:
    key = _key(document)
    for findings, ignored in ((document.findings, "no"), (document.ignored, "yes")):
        for at, finding in enumerate(findings):
            yield {
                **_cells(finding, FINDINGS),
                **key,
                "folded": "; ".join(finding.folded),
                "file": finding.named_file or None,
                "ignored": ignored,
                "cause": "; ".join(document.causes_of(at)) if ignored == "no" else "",
            }


def _diagnosis_rows(document: Document) -> Iterator[Row]:
    key = _key(document)
    for cause in document.diagnosis:
        kinds = dict.fromkeys(document.findings[at].kind for at in cause.findings)
        yield {
            **_cells(cause, ("cause", "severity", "level", "summary", "fix")),
            **key,
            "fields": json.dumps(to_builtins(cause.fields)) if cause.fields else None,
            "findings": len(cause.findings),
            "kinds": "; ".join(kinds),
            "evidence": "; ".join(cause.evidence),
        }


def _key(document: Document) -> Row:
    return {
        "model": document.model,
        "commit_sha": document.commit,
        "component": document.component,
    }


def _cells(of: object, columns: Iterable[str]) -> dict[str, Any]:
    """Return the attributes of an object by the columns of their names; None for other columns."""
    return {column: getattr(of, column, None) for column in columns}
