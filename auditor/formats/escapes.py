"""Escape untrusted text in Markdown, LaTeX and CSV, so that it stays text.

Markdown text gets no markup, HTML, link, mention of a user or reference to an issue. In CSV, text
that a spreadsheet or pandas would read as a formula, a number or "no value" gets an apostrophe in
front, by which spreadsheets recognise text.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from auditor.messages import printable

_MARKED = re.compile(r"[\\`*_{}\[\]()#+!|~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CUT = "<!-- -->"  # between characters that would make a mention, a reference or a link
# GitHub looks for mentions and references after it has removed backslashes.
_LINKED = re.compile(r"(?<=@)|((?<=#)|(?<=GH-))(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_TICKS = re.compile("`+")
_WORDS = re.compile(r"[A-Za-z0-9 (),]*")  # text that needs no escape: headings, statuses, shapes


def escaped_markdown(text: str) -> str:
    """Escape a text that stands within a Markdown sentence."""
    shown = _LINKED.sub("\0", printable(text))
    shown = "".join(_ENTITIES.get(char, char) for char in shown)
    return _MARKED.sub(r"\\\g<0>", shown).replace("\0", _CUT)


def code_span(text: str) -> str:
    """Format a name as Markdown code, in more backticks than its longest run of backticks."""
    shown = printable(text)
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    space = " " if not shown.strip() or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{space}{shown}{space}{fence}"


def code_cell(text: str) -> str:
    r"""Format a name as Markdown code in a table cell: a vertical line becomes \x7c.

    Markdown parsers do not agree whether `\\|` ends a cell.
    """
    return code_span(text.replace("|", r"\x7c"))


def table_cell(text: str) -> str:
    """Return a text of plain words unchanged, and any other text as Markdown code."""
    return text if _WORDS.fullmatch(text) else code_cell(text)


def escaped_latex(text: str) -> str:
    """Escape a text so that TeX prints it unchanged."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "{}_%&#$" else c) for c in printable(text))


# --- cells of CSV -------------------------------------------------------------------------------

Cell = str | int | float | None

WHOLE = "(whole model)"  # the name of the root, whose prefix is empty: pandas reads that as NaN

# A spreadsheet runs a cell that begins with one of these as a formula. The last four are the wide
# forms of the first four, which East Asian versions treat in the same way.
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
    """Put `'` before a text that would be read as a formula or a value.

    Return None for an integer of more than 64 bits.
    """
    if isinstance(cell, int) and not -_INT64 <= cell < _INT64:
        return None
    if not isinstance(cell, str):
        return cell
    text = guarded_value(cell)
    return f"'{text}" if text in _FLAGS or _NUMBER.fullmatch(text) else text


def guarded_value(cell: str) -> str:
    """Put `'` before a text that would be read as a formula or "no value".

    Unlike `safe`, leave other texts that would be read as a number or a flag unchanged.
    """
    text = printable(cell)
    is_guarded = cell.lstrip(" ").startswith(_FORMULA) or text in _NO_VALUES
    return f"'{text}" if is_guarded else text


def csv_row(row: Mapping[str, Cell], columns: Sequence[str]) -> list[Cell]:
    """Return the guarded cells of a row; in the column `formula`, numbers are not guarded."""
    return [
        guarded_value(cell) if column == "formula" and isinstance(cell, str) else safe(cell)
        for column in columns
        for cell in (row[column],)
    ]


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Return rows as CSV; the caller has already guarded the cells against formulas.

    Headings are not guarded: `nan` stays unchanged.
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
