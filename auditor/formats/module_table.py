"""The module table of the terminal: a few rows of module prefixes, whatever the model's size."""

from collections.abc import Sequence
from typing import Literal

from rich.table import Table
from rich.text import Text

from auditor.formats.module_lines import Line
from auditor.formats.text import cut_name, printable

_MIN_ROOM = 16  # for a prefix, where the figures take all of a narrow terminal
_UNKNOWN = "-"
_FIGURES = ("tensors", "parameters", "share", "expected", "difference")
STYLES = {
    "missing": "bold red",
    "mismatched": "bold red",
    "unreadable": "bold red",
    "unexpected": "yellow",
    "duplicate": "yellow",
}


def stored_table(found: Sequence[Line], width: int) -> Table:
    """Stored against expected; the figures of folded modules are those of all of them together.

    A column of which nothing is known is left out. Numbers are never cut: where they leave too
    little room for the prefixes, the table is wider than `width`.
    """
    figures = {
        "tensors": [_count(line, line.row.tensors) for line in found],
        "parameters": [_count(line, line.row.parameters) for line in found],
        "share": [_share(line) for line in found],
        "expected": [_count(line, line.row.expected) for line in found],
        "difference": [_difference(line) for line in found],
    }
    columns = {name: cells for name, cells in figures.items() if set(cells) != {_UNKNOWN}}
    statuses = [line.row.status for line in found]
    taken = [_width(name, cells) for name, cells in columns.items()]
    room = max(_MIN_ROOM, width - sum(taken) - len(taken) - 1 - _width("status", statuses))
    made = _empty("module", *columns, "status")
    for at, line in enumerate(found):
        cells = (Text(column[at]) for column in columns.values())
        status = Text(statuses[at], style=STYLES.get(statuses[at], ""))
        made.add_row(Text(cut_name(_prefix(line), room)), *cells, status)
    return made


def expected_table(found: Sequence[Line], width: int) -> Table:
    """The expected side alone, with the formula of each module."""
    made = _empty("module", "expected", "formula")
    made.columns[2].no_wrap = False
    for line in found:
        formula = printable(line.row.formula or _UNKNOWN)
        text = formula if line.modules == 1 else f"{line.modules} x ({formula})"
        prefix = cut_name(_prefix(line), width // 2)
        made.add_row(Text(prefix), Text(_count(line, line.row.expected)), Text(text))
    return made


def _empty(*columns: str) -> Table:
    """A table without rules: names on the left, figures right-aligned, a word or text last."""
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        side: Literal["left", "right"] = "right" if name in _FIGURES else "left"
        made.add_column(name, justify=side, no_wrap=True, overflow="fold")
    return made


def _prefix(line: Line) -> str:
    return printable(line.pattern) if line.row.depth else "(whole model)"


def _count(line: Line, figure: int | None) -> str:
    return _UNKNOWN if figure is None else f"{line.modules * figure:,}"


def _difference(line: Line) -> str:
    difference = line.row.difference
    return f"{line.modules * difference:+,}" if difference else _count(line, difference)


def _share(line: Line) -> str:
    share = line.row.share
    return _UNKNOWN if share is None else f"{line.modules * share:.1%}"


def _width(name: str, cells: Sequence[str]) -> int:
    return max(map(len, [name, *cells]))
