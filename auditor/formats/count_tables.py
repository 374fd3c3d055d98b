"""Tables of counts as text, Markdown, CSV, JSON or LaTeX."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from auditor.claims.hand_counts import CountTable
from auditor.formats.csv_cells import Cell, csv_text, guarded_value, safe
from auditor.formats.json_values import json_text
from auditor.formats.text import columns, lines_text

_CellText = str | int | None


def _shown(cell: _CellText) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if type(cell) is int else str(cell)


def _figures(table: CountTable) -> tuple[bool, ...]:
    """Return which columns hold figures, and are aligned to the right."""
    return tuple(
        any(type(row[at]) is int for row in table.rows) for at in range(len(table.columns))
    )


def as_text(tables: Sequence[CountTable]) -> str:
    return "\n".join(map(_text_of, tables))


def _text_of(table: CountTable) -> str:
    rows = [table.columns, *(tuple(map(_shown, row)) for row in table.rows)]
    right = {at for at, figure in enumerate(_figures(table)) if figure}
    return lines_text(columns(rows, right=right, gap=2))


def as_markdown(tables: Sequence[CountTable]) -> str:
    return "\n".join(map(_markdown_of, tables))


def _markdown_of(table: CountTable) -> str:
    from auditor.formats.markdown_text import table_cell  # noqa: PLC0415 - only for this format

    rules = ["---:" if figure else "---" for figure in _figures(table)]
    heading, *rows = (
        [table_cell(cell) if isinstance(cell, str) else _shown(cell) for cell in row]
        for row in (table.columns, *table.rows)
    )
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, rules, *rows))


def as_csv_text(tables: Sequence[CountTable]) -> str:
    """Write one table, or several as one table whose column `table` names the table of each row.

    The first column of each table holds names; a column that only other tables have is empty.
    """
    if len(tables) == 1:
        [table] = tables
        return _csv(table.columns, table.rows)
    more = dict.fromkeys(column for table in tables for column in table.columns[1:])
    rows: list[Sequence[_CellText]] = []
    for table in tables:
        for row in table.rows:
            cells = dict(zip(table.columns[1:], row[1:], strict=True))
            rows.append((row[0], table.title, *map(cells.get, more)))
    return _csv(("name", "table", *more), rows)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[_CellText]]) -> str:
    cells = ((safe(row[0]), *map(_readable, row[1:])) for row in rows)
    return csv_text((map(safe, columns), *cells))


def _readable(cell: _CellText) -> Cell:
    """Guard a cell as `safe` does, but leave numbers and flags: shapes, values of the config."""
    return guarded_value(cell) if isinstance(cell, str) else safe(cell)


def as_objects(tables: Sequence[CountTable]) -> dict[str, Any]:
    """Return the rows of each table by its title; a row is an object by column."""
    return {
        table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        for table in tables
    }


def as_json_text(tables: Sequence[CountTable]) -> str:
    return json_text(as_objects(tables)) + "\n"


def as_latex(tables: Sequence[CountTable]) -> str:
    from auditor.formats.explanation import escaped_latex  # noqa: PLC0415 - only for this format

    parts = []
    for table in tables:
        sides = "".join("r" if figure else "l" for figure in _figures(table))
        rows = (table.columns, *(tuple(map(_shown, row)) for row in table.rows))
        body = "".join(f"{' & '.join(map(escaped_latex, row))} \\\\\n" for row in rows)
        parts.append(f"\\begin{{tabular}}{{{sides}}}\n{body}\\end{{tabular}}\n")
    return "\n".join(parts)


TABLE_FORMATS: Mapping[str, Callable[[Sequence[CountTable]], str]] = MappingProxyType(
    {
        "terminal": as_text,
        "markdown": as_markdown,
        "csv": as_csv_text,
        "json": as_json_text,
        "latex": as_latex,
    }
)
