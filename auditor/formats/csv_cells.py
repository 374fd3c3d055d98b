"""The cells of CSV, written so that spreadsheets and pandas read back the same text.

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

# A spreadsheet runs a cell that begins with one of these as a formula. The last four are the wide
# forms of the first four, which East Asian versions treat alike.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# Texts that `pandas.read_csv` reads as "no value" by default, and those that it reads as flags.
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
    """Guard a cell against being read as something else; None for a count of more than 64 bits."""
    if isinstance(cell, int) and not -_INT64 <= cell < _INT64:
        return None
    if not isinstance(cell, str):
        return cell
    text = guarded_value(cell)
    return f"'{text}" if text in _FLAGS or _NUMBER.fullmatch(text) else text


def csv_row(row: Mapping[str, Cell], columns: Sequence[str]) -> list[Cell]:
    """Return the cells of a row; a formula may be a number, because the oracle's is."""
    found = [safe(row[column]) for column in columns]
    if "formula" in columns and isinstance(formula := row["formula"], str):
        found[columns.index("formula")] = guarded_value(formula)
    return found


def guarded_value(cell: str) -> str:
    """Guard a text that may be a number or a flag: a shape, the value of a config key."""
    text = printable(cell)
    guarded = cell.lstrip(" ").startswith(_FORMULA) or text in _NO_VALUES
    return f"'{text}" if guarded else text


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Write rows without guarding them: headings, one of which is `nan`, or guarded cells."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
