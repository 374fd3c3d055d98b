"""The differences between two checkpoints as tables; lost modules come first."""

from collections.abc import Iterable, Iterator

from auditor.comparing import Changed, Comparison, Lost
from auditor.formats.tables import SimpleTable, Table, cut_table
from auditor.reconciler.fold import fold

_LONGEST_VALUE = 60  # characters of a config value

_Rows = Iterator[tuple[str | int | None, ...]]


def comparison_tables(comparison: Comparison, *, most: int | None = None) -> tuple[Table, ...]:
    """Return the tables that have rows, each with at most `most` rows."""
    first, second = comparison.models
    sides = (first, second) if first != second else (f"{first} (before)", f"{second} (after)")
    tables = (
        _table("lost", ("lost", "what", "tensors", "parameters"), _lost(comparison.lost)),
        _table("gained", ("gained", "what", "tensors", "parameters"), _lost(comparison.gained)),
        _table("renamed", ("renamed", "before", "after"), _renamed(comparison)),
        _table("tensors", ("tensors", "change", "before", "after"), _tensors(comparison)),
        _table("config", ("config key", "before", "after", "tensors explained"), _keys(comparison)),
        _table("modules", ("module", *sides, "difference"), _modules(comparison)),
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
    yield from _changes("moved", comparison.moved)


def _changes(change: str, tensors: Iterable[Changed]) -> _Rows:
    names_by_values: dict[tuple[str, str], list[str]] = {}
    for tensor in tensors:
        names_by_values.setdefault((tensor.before, tensor.after), []).append(tensor.name)
    for (before, after), names in names_by_values.items():
        for pattern in fold(names):
            yield pattern, change, before, after


def _keys(comparison: Comparison) -> _Rows:
    for change in comparison.keys:
        yield change.key, _value(change.before), _value(change.after), change.explains


def _value(value: object) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _modules(comparison: Comparison) -> _Rows:
    for module, before, after in comparison.modules:
        yield module, before, after, after - before
