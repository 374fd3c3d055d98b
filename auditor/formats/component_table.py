"""The table of components of the terminal: a row for each model of a repository of several."""

from rich.table import Table
from rich.text import Text

from auditor.formats.text import cut_middle, printable
from auditor.report import Report, Unaudited

_UNKNOWN = "-"
_HEADINGS = ("component", "class", "parameters", "expected", "status")
_LONGEST = 24  # characters of a folder
_ROOM = 12  # characters of a class, where the figures take all of a narrow terminal
_STYLES = {"clean": "green", "findings": "bold red", "unaudited": "yellow"}


def component_table(outcome: Report | Unaudited, width: int) -> Table:
    """Folder, class, parameters stored and expected, and how it ended; classes are cut to fit."""
    parts = outcome.every[1:]
    folders = [cut_middle(printable(one.component or _UNKNOWN), _LONGEST) for one in parts]
    stored = [_count(one.observed.parameters if one.observed else None) for one in outcome.every]
    expected = [_count(one.expected.parameters if one.expected else None) for one in outcome.every]
    statuses = [str(one.reason if isinstance(one, Unaudited) else one.verdict) for one in parts]
    columns: tuple[list[str], ...] = (folders, stored, expected, statuses)
    headings = (_HEADINGS[0], *_HEADINGS[2:])
    taken = (max(map(len, (name, *cells))) for name, cells in zip(headings, columns, strict=True))
    room = max(_ROOM, width - sum(taken) - len(columns))
    made = _empty()
    for at, one in enumerate(parts):
        kind = Text(cut_middle(printable(one.target or _UNKNOWN), room))
        figures = Text(stored[at + 1]), Text(expected[at + 1])
        made.add_row(Text(folders[at]), kind, *figures, Text(statuses[at], _STYLES[one.verdict]))
    made.add_row(Text("all", "bold"), Text(""), Text(stored[0]), Text(expected[0]), Text(""))
    return made


def _empty() -> Table:
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in _HEADINGS:
        figure = name in {"parameters", "expected"}
        made.add_column(name, justify="right" if figure else "left", no_wrap=True)
    return made


def _count(figure: int | None) -> str:
    return _UNKNOWN if figure is None else f"{figure:,}"
