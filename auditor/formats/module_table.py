"""The module table of the terminal: a few rows of module prefixes, whatever the model's size."""

from collections.abc import Iterator, Mapping, Sequence

from auditor.formats.layout import Style, Styled, StyledLine, columns, header_row
from auditor.formats.module_lines import Line
from auditor.formats.text import cut_name, printable

_MIN_ROOM = 16  # for a prefix, where the figures take all of a narrow terminal
_UNKNOWN = "-"
STYLES: Mapping[str, Style] = {
    "missing": "bold red",
    "mismatched": "bold red",
    "unreadable": "bold red",
    "unexpected": "yellow",
    "duplicate": "yellow",
}


def stored_table(found: Sequence[Line], width: int) -> Iterator[StyledLine]:
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
    known = {name: cells for name, cells in figures.items() if set(cells) != {_UNKNOWN}}
    statuses = [line.row.status for line in found]
    taken = [_width(name, cells) for name, cells in known.items()]
    room = max(_MIN_ROOM, width - sum(taken) - len(taken) - 1 - _width("status", statuses))
    names = [cut_name(_prefix(line), room) for line in found]
    told = [(status, STYLES.get(status, "")) for status in statuses]
    rows = zip(names, *known.values(), told, strict=True)
    headings = header_row("module", *known, "status")
    return columns([headings, *rows], right=range(1, len(known) + 1))


def expected_table(found: Sequence[Line], width: int) -> Iterator[StyledLine]:
    """The expected side alone, with the formula of each module."""
    rows: list[Sequence[Styled | str]] = [header_row("module", "expected", "formula")]
    for line in found:
        formula = printable(line.row.formula or _UNKNOWN)
        text = formula if line.modules == 1 else f"{line.modules} x ({formula})"
        prefix = cut_name(_prefix(line), width // 2)
        rows.append((prefix, _count(line, line.row.expected), text))
    return columns(rows, right={1})


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
