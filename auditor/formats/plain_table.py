"""Tables and paragraphs laid out as rich does it, to the character, without rich.

Of the 220 ms of processor time that a whole `audit explain` took, importing rich took 30, and its
tables of long formulas 15 to 45.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from auditor.formats.text import ELLIPSIS, cells_of, is_narrow

_WORD = re.compile(r"\s*\S+\s*")


class Column(NamedTuple):
    """A column of a table. The last one's texts are wrapped, those of the others are cut."""

    header: str
    right: bool = False  # aligned to the right


def bold(text: str, *, color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if text and color else text


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, color: bool
) -> Iterator[str]:
    """A line of headers, in bold, and some for each row; a space is between columns."""
    headers = [column.header for column in columns]
    *natural, last = (max(map(cells_of, texts)) for texts in zip(headers, *rows, strict=True))
    widths = _fitting([*(min(cells + 1, width) for cells in natural), min(last, width)], width)
    *first, room = widths
    parts = [part for pair in zip(columns, first, headers, strict=False) for part in _cell(*pair)]
    title = _cut(headers[-1], room)
    parts.append(title + " " * (room - cells_of(title)))
    yield "".join(bold(part, color=color) for part in parts)
    for row in rows:
        cells = "".join("".join(_cell(*each)) for each in zip(columns, first, row, strict=False))
        for line in wrapped(row[-1], room, fold=False) if room else ("",):
            yield cells + line
            cells = " " * sum(first)


def wrapped(text: str, width: int, *, fold: bool) -> Iterator[str]:
    """A text in lines; a word that is longer than one goes on in the next (fold), or is cut."""
    start = 0
    for end in (*_breaks(text, width, fold=fold), len(text)):
        line = text[start:end].rstrip()
        yield line if fold else _cut(line, width)
        start = end


def _breaks(text: str, width: int, *, fold: bool) -> Iterator[int]:
    """Where lines begin, but for the first."""
    taken = 0
    for match in _WORD.finditer(text):
        word, start = match[0], match.start()
        length = cells_of(word.rstrip())
        if length <= width - taken:
            taken += cells_of(word)
        elif length > width and fold:
            for part in _chopped(word, width):
                if start:
                    yield start
                start, taken = start + len(part), cells_of(part)
        else:
            if start and (taken or length > width):
                yield start
            taken = cells_of(word)


def _fitting(widths: list[int], width: int) -> list[int]:
    """The last column gives way, and if that is not enough all of them alike."""
    excess = max(0, sum(widths) - width)
    widths = [*widths[:-1], widths[-1] - min(excess, widths[-1])]
    excess = max(0, sum(widths) - width)
    found, left = [], sum(map(bool, widths))
    for each in widths:
        less = min(each, round(excess / left)) if each else 0
        found.append(each - less)
        excess, left = excess - less, left - bool(each)
    return found


def _cell(column: Column, width: int, text: str) -> tuple[str, str]:
    """The text in a column of that width, and the space behind it."""
    room = width - 1
    if room < 1:
        return "", " " * width
    shown = _cut(text, room)
    rest = " " * (room - cells_of(shown))
    return rest + shown if column.right else shown + rest, " "


def _cut(text: str, room: int) -> str:
    if cells_of(text) <= room:
        return text
    return _first(text, room - 1) + ELLIPSIS if room else ""


def _first(text: str, room: int) -> str:
    """So many cells of a text; half of a wide character is a space."""
    if is_narrow(text):
        return text[:room]
    from rich.cells import set_cell_size  # noqa: PLC0415 - nearly all names are ASCII

    return set_cell_size(text, room)


def _chopped(word: str, width: int) -> Iterable[str]:
    if is_narrow(word):
        return (word[at : at + width] for at in range(0, len(word), width))
    from rich.cells import chop_cells  # noqa: PLC0415 - as above

    return chop_cells(word, width)
