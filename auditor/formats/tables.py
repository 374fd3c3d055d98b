"""Tables with typed cells, and their text in each format: a cell's type decides its text.

A table is pure data. `None` is a cell whose value is unknown; a column with a number is aligned to
the right.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from auditor.formats.escapes import (
    Cell,
    code_cell,
    csv_text,
    guarded_value,
    safe,
    table_cell,
)
from auditor.formats.json_values import json_text
from auditor.formats.text import Style, Styled, cells_of, columns, cut_name, lines_text, size

if TYPE_CHECKING:
    from auditor.claims.hand_counts import CountTable


class Name(str):
    """A name from a checkpoint, or a formula: shown as code in Markdown and HTML."""

    __slots__ = ()


class Heading(str):
    """A word that is the heading of its row."""

    __slots__ = ()


class Status(str):
    """A cell with the status of a module; a status that means a fault is printed in colour."""

    __slots__ = ()


class Signed(int):
    """A difference of two numbers, shown with its sign."""


class ByteCount(int):
    """A number of bytes, shown as `392 MiB`."""


class Share(float):
    """A fraction from 0 to 1, shown as a percentage."""

    __slots__ = ()


class SimpleTable(NamedTuple):
    """A table of typed cells; a cell may also be Styled (terminal) or an Element (HTML)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


Table: TypeAlias = "SimpleTable | CountTable"


_NUMBER_TEXTS: Mapping[type, Callable[[Any], str]] = {
    int: "{:,}".format,
    Signed: lambda number: f"{number:+,}" if number else "0",
    ByteCount: size,
    Share: "{:.1%}".format,
    float: "{:.2f}".format,
}


def cell_text(cell: Cell, unknown: str = "") -> str:
    """Return the text of a cell for people; `unknown` for a cell without a value."""
    if text_of := _NUMBER_TEXTS.get(type(cell)):
        return text_of(cell)
    return unknown if cell is None else str(cell)


def number_columns(table: Table) -> tuple[bool, ...]:
    """Return, for each column, whether it contains a number."""
    return tuple(
        any(type(row[at]) in _NUMBER_TEXTS for row in table.rows)
        for at in range(len(table.columns))
    )


def without_unknown_columns(table: Table) -> SimpleTable:
    """Leave out columns in which no value is known."""
    filled_columns = [
        at
        for at in range(len(table.columns))
        if not table.rows or any(row[at] is not None for row in table.rows)
    ]
    rows = tuple(tuple(row[at] for at in filled_columns) for row in table.rows)
    return SimpleTable(table.title, tuple(table.columns[at] for at in filled_columns), rows)


def cut_table(table: Table, most: int | None) -> Table:
    """Return the table's first `most` rows, and a row with the number of rows left out."""
    if most is None or len(table.rows) <= most:
        return table
    last_row = (f"and {len(table.rows) - most:,} more", *(None for _ in table.columns[1:]))
    return SimpleTable(table.title, table.columns, (*table.rows[:most], last_row))


# --- in a terminal ------------------------------------------------------------------------------

_LEAST_ROOM = 16  # least cells of a name, where a terminal is too narrow for names and numbers
STATUS_STYLES: Mapping[str, Style] = {
    "missing": "bold red",
    "mismatched": "bold red",
    "unreadable": "bold red",
    "unexpected": "yellow",
    "duplicate": "yellow",
}


def styled_rows(
    table: Table, *, unknown: str = "-", cut: int = 0, room: int | None = None
) -> list[list[Styled]]:
    """Return heading and rows as styled cells.

    Texts in column `cut` are cut to `room` terminal cells, if `room` is given.
    """
    rows = [[_styled(cell, unknown) for cell in row] for row in table.rows]
    if room is not None:
        for row in rows:
            text, style = row[cut]
            row[cut] = cut_name(text, room), style
    return [[(name, "bold") for name in table.columns], *rows]


def _styled(cell: Cell | Styled, unknown: str) -> Styled:
    if isinstance(cell, tuple):
        return cell
    if isinstance(cell, Status):
        return cell, STATUS_STYLES.get(cell, "")
    return cell_text(cell, unknown), "bold" if isinstance(cell, Heading) else ""


def fitted_rows(
    table: Table, width: int, *, gap: int = 1, cut: int = 0, least: int = _LEAST_ROOM
) -> list[list[Styled]]:
    """Return styled rows; the texts in column `cut` are cut so that the table fits into `width`.

    Other columns are never cut: if they leave fewer than `least` terminal cells, the table is wider
    than `width`.
    """
    rows = styled_rows(table)
    others = [at for at in range(len(table.columns)) if at != cut]
    taken = sum(max(cells_of(row[at][0]) for row in rows) + gap for at in others)
    return styled_rows(table, cut=cut, room=max(least, width - taken))


def right_columns(table: Table) -> set[int]:
    return {at for at, is_number in enumerate(number_columns(table)) if is_number}


def as_text(tables: Sequence[Table]) -> str:
    return "\n".join(
        lines_text(columns(styled_rows(table, unknown=""), right=right_columns(table), gap=2))
        for table in tables
    )


# --- in other formats ---------------------------------------------------------------------------


def as_markdown(tables: Sequence[Table]) -> str:
    return "\n".join(map(markdown_table, tables))


def markdown_table(table: Table) -> str:
    def text(cell: Cell) -> str:
        if isinstance(cell, Name):
            return code_cell(cell)
        if isinstance(cell, Status):
            return cell
        return table_cell(cell) if isinstance(cell, str) else cell_text(cell)

    rules = ["---:" if is_number else "---" for is_number in number_columns(table)]
    heading, *rows = ([text(cell) for cell in row] for row in (table.columns, *table.rows))
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, rules, *rows))


def as_csv_text(tables: Sequence[Table]) -> str:
    """Write tables as one CSV; if there are several, a column `table` names the table of each row.

    The first column of each table contains names; cells under columns of other tables are empty.
    """
    if len(tables) == 1:
        [table] = tables
        return _csv(table.columns, table.rows)
    more = dict.fromkeys(column for table in tables for column in table.columns[1:])
    rows: list[Sequence[Any]] = []
    for table in tables:
        for row in table.rows:
            cells = dict(zip(table.columns[1:], row[1:], strict=True))
            rows.append((row[0], table.title, *map(cells.get, more)))
    return _csv(("name", "table", *more), rows)


def _csv(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    # Texts after the first column that are numbers or flags are values of a config.
    cells = (
        (
            safe(row[0]),
            *(guarded_value(one) if isinstance(one, str) else safe(one) for one in row[1:]),
        )
        for row in rows
    )
    return csv_text((map(safe, headings), *cells))


def as_objects(tables: Sequence[Table]) -> dict[str, Any]:
    """Map each table's title to its rows; a row maps column names to cells."""
    return {
        table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        for table in tables
    }


def as_json_text(tables: Sequence[Table]) -> str:
    return json_text(as_objects(tables)) + "\n"


TABLE_FORMATS: Mapping[str, Callable[[Sequence[Table]], str]] = MappingProxyType(
    {
        "terminal": as_text,
        "markdown": as_markdown,
        "csv": as_csv_text,
        "json": as_json_text,
    }
)
