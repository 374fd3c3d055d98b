"""The CSV tables: models, modules, findings and diagnosis; tensor_table has the fifth.

RFC 4180 but for the line ends, which are LF: the tables are committed and compared by git. UTF-8.
Nothing known is an empty cell. Columns are only ever added, at the end.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from auditor.formats import View
from auditor.formats.as_json import as_object
from auditor.formats.csv_cells import Cell, csv_row, csv_text
from auditor.formats.csv_rows import COLUMNS, Outcome, Row, rows_of, with_components
from auditor.report import Report, Unaudited


def files(outcomes: Sequence[Report | Unaudited], view: View | None = None) -> dict[str, str]:
    """The tables by file name, to be written as UTF-8 without translating line ends.

    After the rows of a repository of several models come those of each, which add up to them.
    """
    objects = [one for outcome in outcomes for one in with_components(as_object(outcome))]
    names = ("modules",) if view is not None and view.printed else COLUMNS
    return {f"{name}.csv": _table(name, objects) for name in names}


def table_of(
    outcome: Report | Unaudited, name: str
) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """The columns and the rows of one table as values, of an outcome and of its parts."""
    columns, rows = tuple(COLUMNS[name]), _rows(name, with_components(as_object(outcome)))
    return columns, [tuple(row[column] for column in columns) for row in rows]


def _table(name: str, outcomes: Iterable[Outcome]) -> str:
    columns = tuple(COLUMNS[name])
    return csv_text((columns, *(csv_row(row, columns) for row in _rows(name, outcomes))))


def _rows(name: str, outcomes: Iterable[Outcome]) -> Iterator[Row]:
    for table, rows in chain.from_iterable(map(rows_of, outcomes)):
        if table == name:
            yield from rows


def yes_or_no(cell: Cell) -> Cell:
    """A flag as a word; every other cell as it is."""
    return ("no", "yes")[cell] if isinstance(cell, bool) else cell
