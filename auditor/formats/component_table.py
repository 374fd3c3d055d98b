"""The table of components of the terminal: a row for each model of a repository of several."""

from collections.abc import Iterator, Mapping, Sequence

from auditor.formats.layout import Style, Styled, StyledLine, columns, header_row
from auditor.formats.text import cut_middle, printable
from auditor.report import Report, Unaudited

_UNKNOWN = "-"
_HEADINGS = ("component", "class", "parameters", "expected", "status")
_LONGEST = 24  # characters of a folder
_ROOM = 12  # characters of a class, where the figures take all of a narrow terminal
_STYLES: Mapping[str, Style] = {"clean": "green", "findings": "bold red", "unaudited": "yellow"}


def component_table(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """Folder, class, parameters stored and expected, and how it ended; classes are cut to fit."""
    parts = outcome.every[1:]
    folders = [cut_middle(printable(one.component or _UNKNOWN), _LONGEST) for one in parts]
    stored = [_count(one.observed.parameters if one.observed else None) for one in outcome.every]
    expected = [_count(one.expected.parameters if one.expected else None) for one in outcome.every]
    statuses = [str(one.reason if isinstance(one, Unaudited) else one.verdict) for one in parts]
    known: tuple[list[str], ...] = (folders, stored, expected, statuses)
    headings = (_HEADINGS[0], *_HEADINGS[2:])
    taken = (max(map(len, (name, *cells))) for name, cells in zip(headings, known, strict=True))
    room = max(_ROOM, width - sum(taken) - len(known))
    kinds = [cut_middle(printable(one.target or _UNKNOWN), room) for one in parts]
    told = [(status, _STYLES[one.verdict]) for status, one in zip(statuses, parts, strict=True)]
    rows: list[Sequence[Styled | str]] = [header_row(*_HEADINGS)]
    rows += zip(folders, kinds, stored[1:], expected[1:], told, strict=True)
    rows.append((*header_row("all"), "", stored[0], expected[0], ""))
    return columns(rows, right={2, 3})


def _count(figure: int | None) -> str:
    return _UNKNOWN if figure is None else f"{figure:,}"
