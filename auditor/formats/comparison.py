"""The differences between two checkpoints: a sentence, then tables; lost modules come first."""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from auditor.comparing import Changed, Comparison, Lost, NumbersCompared
from auditor.formats.escapes import escaped_markdown
from auditor.formats.json_values import json_text
from auditor.formats.tables import (
    TABLE_FORMATS,
    Share,
    SimpleTable,
    Table,
    as_objects,
    cut_table,
)
from auditor.formats.text import lines_text
from auditor.names.folding import fold
from auditor.names.parts import module_kind

_LONGEST_VALUE = 60  # characters of a config value

_VALUE_COLUMNS = (
    *("numbers", "tensors", "sampled", "median distance", "largest distance"),
    *("largest difference", "rank of the difference"),
)

_Rows = Iterator[tuple[str | int | float | None, ...]]


def as_object(comparison: Comparison) -> dict[str, Any]:
    """Return the JSON object: the sentence, what was compared, and the rows of each table."""
    stored = comparison.bytes
    return {
        "summary": comparison.summary,
        "same": comparison.same,
        "models": list(comparison.models),
        "layouts": list(comparison.layouts),
        "same_bytes": len(stored.equal),
        "other_bytes": list(stored.other),
        "other_files": list(stored.other_files),
        "not_compared": list(comparison.not_compared),
        **as_objects(comparison_tables(comparison)),
    }


def render(comparison: Comparison, form: str, *, most: int | None = None) -> str:
    """Return the comparison in a format of TABLE_FORMATS; CSV has the tables alone."""
    if form == "json":
        return json_text(as_object(comparison)) + "\n"
    tables = TABLE_FORMATS[form](comparison_tables(comparison, most=most))
    lines = [comparison.summary, *(f"Not compared: {one}." for one in comparison.not_compared)]
    match form:
        case "csv":
            return tables
        case "markdown":
            return "\n\n".join([*map(escaped_markdown, lines), tables])
        case _:
            text = lines_text(((line, ""),) for line in lines)
            return "\n".join(filter(None, [text, tables]))


def comparison_tables(comparison: Comparison, *, most: int | None = None) -> tuple[Table, ...]:
    """Return the tables that have rows, each with at most `most` rows.

    With `most`, modules with equal numbers of parameters on both sides are one row.
    """
    first, second = comparison.models
    sides = (first, second) if first != second else (f"{first} (before)", f"{second} (after)")
    keys = (
        (one.key, _value(one.before), _value(one.after), one.explains) for one in comparison.keys
    )
    tables = (
        _table("lost", ("lost", "what", "tensors", "parameters"), _lost(comparison.lost)),
        _table("gained", ("gained", "what", "tensors", "parameters"), _lost(comparison.gained)),
        _table("renamed", ("renamed", "before", "after"), _renamed(comparison)),
        _table("tensors", ("tensors", "change", "before", "after"), _tensors(comparison)),
        _table("values", _VALUE_COLUMNS, _values(comparison.numbers)),
        _table("config", ("config key", "before", "after", "tensors explained"), keys),
        _table(
            "modules",
            ("module", *sides, "difference"),
            _modules(comparison, only_whole=most is not None),
        ),
    )
    return tuple(cut_table(table, most) for table in tables if table.rows)


def _table(title: str, columns: tuple[str, ...], rows: _Rows) -> SimpleTable:
    return SimpleTable(title, columns, tuple(rows))


def _lost(modules: Iterable[Lost]) -> _Rows:
    """Yield a row for each lost or gained module; equal ones share a row: `layers.{10-11}`."""
    names_by_counts: dict[tuple[str, int, int], list[str]] = {}
    for lost in modules:
        counts = (lost.what, lost.tensors, lost.parameters)
        names_by_counts.setdefault(counts, []).append(lost.module)
    for (what, tensors, parameters), names in names_by_counts.items():
        patterns = fold(names, words=False)
        times = len(names) if len(patterns) == 1 else 1
        for pattern in patterns:
            yield pattern, what, tensors * times, parameters * times


def _renamed(comparison: Comparison) -> _Rows:
    if comparison.renamed:
        before, after = comparison.renamed
        yield "prefix of names", before or "none", after or "none"


def _tensors(comparison: Comparison) -> _Rows:
    for change, names in (("removed", comparison.removed), ("added", comparison.added)):
        for pattern in fold(names):
            yield pattern, change, None, None
    yield from _changes("reshaped", comparison.reshaped)
    yield from _changes("other dtype", comparison.retyped)
    for pattern in fold(comparison.bytes.other):
        yield pattern, "other bytes", None, None
    for file in comparison.bytes.other_files:
        yield file, "other sha256", None, None
    yield from _changes("moved", comparison.moved)


def _changes(change: str, tensors: Iterable[Changed]) -> _Rows:
    names_by_values: dict[tuple[str, str], list[str]] = {}
    for tensor in tensors:
        names_by_values.setdefault((tensor.before, tensor.after), []).append(tensor.name)
    for (before, after), names in names_by_values.items():
        for pattern in fold(names):
            yield pattern, change, before, after


def _values(numbers: Iterable[NumbersCompared]) -> _Rows:
    """Yield a row for each kind of module; distances are shares of the norm of A's numbers."""
    by_kind: dict[str, list[NumbersCompared]] = {}
    for one in numbers:
        by_kind.setdefault(module_kind(one.name), []).append(one)
    for kind, tensors in by_kind.items():
        ranks = [one.rank for one in tensors if one.rank is not None]
        yield (
            kind,
            len(tensors),
            sum(one.numbers for one in tensors),
            Share(median(one.relative for one in tensors)),
            Share(max(one.relative for one in tensors)),
            max(one.largest for one in tensors),
            max(ranks) if ranks else None,
        )


def _value(value: object) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _modules(comparison: Comparison, *, only_whole: bool) -> _Rows:
    """Yield the parameters by module; of equal modules, if so asked, the whole model alone."""
    differs = any(before != after for _, before, after in comparison.modules)
    shown = comparison.modules if differs or not only_whole else comparison.modules[:1]
    for module, before, after in shown:
        yield module, before, after, after - before
