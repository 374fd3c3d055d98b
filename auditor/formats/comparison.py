"""The differences of two checkpoints as tables; modules that were lost come first."""

from collections.abc import Iterator
from typing import Any

from auditor.claims.hand_counts import CountTable
from auditor.comparing import Changed, Comparison, Lost
from auditor.formats.count_tables import as_objects
from auditor.reconciler.fold import fold

_SHOWN = 40  # rows of one kind for people; JSON and CSV have all


def comparison_tables(found: Comparison, *, most: int | None = _SHOWN) -> tuple[CountTable, ...]:
    """Return the tables that have rows; the one of modules always has."""
    tables = (
        _table("lost", ("lost", "what", "tensors", "parameters"), _whole(found.lost)),
        _table("gained", ("gained", "what", "tensors", "parameters"), _whole(found.gained)),
        _table("renamed", ("renamed", "before", "after"), _renamed(found)),
        _table("tensors", ("tensors", "change", "before", "after"), _tensors(found)),
        _table("config", ("config key", "before", "after", "tensors explained"), _keys(found)),
        _table("modules", ("module", *_names(found), "difference"), _modules(found)),
    )
    return tuple(_cut(table, most) for table in tables if table.rows)


def as_tables_of_rows(found: Comparison) -> dict[str, Any]:
    """Return the rows of each table by its title; a row is an object by column."""
    return as_objects(comparison_tables(found, most=None))


_Rows = Iterator[tuple[str | int | None, ...]]


def _table(title: str, columns: tuple[str, ...], rows: _Rows) -> CountTable:
    return CountTable(title=title, columns=columns, rows=tuple(rows))


def _cut(table: CountTable, most: int | None) -> CountTable:
    if most is None or len(table.rows) <= most:
        return table
    rest = (f"and {len(table.rows) - most} more", *(None for _ in table.columns[1:]))
    return CountTable(title=table.title, columns=table.columns, rows=(*table.rows[:most], rest))


def _names(found: Comparison) -> tuple[str, str]:
    first, second = found.models
    return (first, second) if first != second else (f"{first} (before)", f"{second} (after)")


def _whole(found: tuple[Lost, ...]) -> _Rows:
    """Yield the modules; those with equal figures fold into one row: `layers.{10-11}`."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for one in found:
        alike.setdefault((one.what, one.tensors, one.parameters), []).append(one.module)
    for (what, tensors, parameters), modules in alike.items():
        for pattern in fold(modules, words=False):
            times = len(modules) if len(fold(modules, words=False)) == 1 else 1
            yield pattern, what, tensors * times, parameters * times


def _renamed(found: Comparison) -> _Rows:
    if found.renamed:
        had, has = found.renamed
        yield "prefix of names", had or "none", has or "none"


def _tensors(found: Comparison) -> _Rows:
    for how, names in (("removed", found.removed), ("added", found.added)):
        for pattern in fold(names):
            yield pattern, how, None, None
    for how, changes in (
        ("reshaped", found.reshaped),
        ("other dtype", found.retyped),
        ("moved", found.moved),
    ):
        yield from _changes(how, changes)


def _changes(how: str, changes: tuple[Changed, ...]) -> _Rows:
    alike: dict[tuple[str, str], list[str]] = {}
    for one in changes:
        alike.setdefault((one.before, one.after), []).append(one.name)
    for (before, after), names in alike.items():
        for pattern in fold(names):
            yield pattern, how, before, after


def _keys(found: Comparison) -> _Rows:
    for one in found.keys:
        yield one.key, _shown(one.before), _shown(one.after), one.explains


def _shown(value: object) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - a column's width


def _modules(found: Comparison) -> _Rows:
    for module, before, after in found.modules:
        yield module, before, after, after - before
