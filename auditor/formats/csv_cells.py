"""What stands in one cell of CSV, so that spreadsheets and pandas read what was written.

Text that a reader would take for something else (a formula, a number, "no value") gets an
apostrophe in front, which makes it text to a spreadsheet, too.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from auditor.messages import printable

Cell = str | int | float | None

WHOLE = "(whole model)"  # the prefix of the root: no name, and an empty cell is read as NaN

# With these a spreadsheet takes a cell for a formula; the last four are the wide forms of the first
# four, which East Asian versions take for the same.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# What `pandas.read_csv` takes for "no value" unless told otherwise, and for truth values.
_NO_VALUES = frozenset(
    {
        *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    }
)
_FLAGS = frozenset({"True", "TRUE", "true", "False", "FALSE", "false"})
_NUMBER = re.compile(
    r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]*)?\s*|\s*inf(inity)?\s*", re.ASCII | re.IGNORECASE
)
_INT64 = 1 << 63


def safe(cell: Cell) -> Cell:
    """A cell that is read as what it is; None for a count that takes more than 64 bits."""
    if isinstance(cell, int) and not -_INT64 <= cell < _INT64:
        return None
    if not isinstance(cell, str):
        return cell
    text = guarded_value(cell)
    return f"'{text}" if text in _FLAGS or _NUMBER.fullmatch(text) else text


def csv_row(row: Mapping[str, Cell], columns: Sequence[str]) -> list[Cell]:
    """The cells of a row; a formula may be a number, which is what the oracle gives."""
    found = [safe(row[column]) for column in columns]
    if "formula" in columns and isinstance(formula := row["formula"], str):
        found[columns.index("formula")] = guarded_value(formula)
    return found


def guarded_value(cell: str) -> str:
    """Text that may be a number or a flag as well: a shape, the value of a config key."""
    text = printable(cell)
    guarded = cell.lstrip(" ").startswith(_FORMULA) or text in _NO_VALUES
    return f"'{text}" if guarded else text


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Rows as they are: headings, one of which is `nan`, or cells that are safe."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
