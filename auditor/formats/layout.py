"""Lines of text for a terminal: styled, wrapped at its width, and lined up in columns.

Without rich, whose import takes 40 of the 250 ms of an audit; tests hold the wrapping to it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from auditor.formats.text import cells_of, cut_middle, printable

Style = Literal[
    "", "bold", "dim", "green", "yellow", "cyan", "bold red", "bold yellow", "bold green"
]
Styled = tuple[str, Style]  # a text without line ends
StyledLine = tuple[Styled, ...]

_CODES: Mapping[Style, str] = {
    "bold": "1",
    "dim": "2",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "bold red": "1;31",
    "bold yellow": "1;33",
    "bold green": "1;32",
}
_WORD = re.compile(r"\s*\S+\s*")
_MAX_TEXT = 1000  # characters of a sentence or a formula: more is a stranger's name in it
_LEAST_ROOM = 16  # cells in which text wraps, on however narrow a terminal


def lines_text(lines: Iterable[StyledLine], *, color: bool = False) -> str:
    """The lines as one text, without the spaces at their ends."""
    return "".join(f"{_painted(line, color=color)}\n" for line in lines)


def _painted(line: StyledLine, *, color: bool) -> str:
    if not color:
        return "".join(text for text, _ in line).rstrip()
    return "".join(
        f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text for text, style in line
    ).rstrip()


def styled(text: str, style: Style = "") -> StyledLine:
    """A line in one style."""
    return ((text, style),)


def shown(text: str) -> str:
    """Text of a stranger, made safe to show and cut."""
    return cut_middle(printable(text), _MAX_TEXT)


# --- wrapping ----------------------------------------------------------------------------------


def wrapped(line: StyledLine | str, width: int, indent: int = 0) -> Iterator[StyledLine]:
    """The line, indented, wrapped between its words; a word longer than a line is cut."""
    whole = styled(line) if isinstance(line, str) else line
    text = "".join(part for part, _ in whole)
    starts = [0, *_breaks(text, max(width - indent, _LEAST_ROOM))]
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        ends = start + len(text[start:end].rstrip())
        yield ((" " * indent, ""), *_between(whole, start, ends))


def _breaks(text: str, room: int) -> Iterator[int]:
    """Where the second line begins, and each after it."""
    taken = 0
    for word in _WORD.finditer(text):
        needed = cells_of(word[0].rstrip())
        if taken + needed <= room:
            taken += cells_of(word[0])
        else:
            if word.start():
                yield word.start()
            taken = cells_of(word[0])
            if needed > room:
                taken = 0
                for at, char in enumerate(word[0], word.start()):
                    cells = cells_of(char)
                    if taken + cells > room:
                        yield at
                        taken = 0
                    taken += cells


def _between(line: StyledLine, start: int, end: int) -> Iterator[Styled]:
    """What a line has from one of its characters to another."""
    at = 0
    for text, style in line:
        yield text[max(start - at, 0) : max(end - at, 0)], style
        at += len(text)


# --- columns -----------------------------------------------------------------------------------


def beside(rows: Iterable[tuple[Styled, str]], least: int, width: int) -> Iterator[StyledLine]:
    """Labels in a column of `least` cells or more, and beside each its text, which wraps."""
    made = list(rows)
    label_width = max([least, *(cells_of(label) for (label, _), _ in made)])
    for label, text in made:
        first, *rest = wrapped(text, width, label_width + 2)
        yield (label, (" " * (label_width + 2 - cells_of(label[0])), ""), *first[1:])
        yield from rest


def columns(
    rows: Sequence[Sequence[Styled | str]],
    *,
    right: Collection[int] = (),
    gap: int = 1,
    width: int | None = None,
) -> Iterator[StyledLine]:
    """Rows as lines whose cells line up; those of the columns in `right` to the right.

    No cell is cut. With a width, the text of the last column goes on below itself.
    """
    cells: list[list[Styled]] = [
        [(cell, "") if isinstance(cell, str) else cell for cell in row] for row in rows
    ]
    widths = [max(cells_of(text) for text, _ in column) for column in zip(*cells, strict=True)]
    indent = sum(widths[:-1]) + gap * (len(widths) - 1)
    for row in cells:
        line: list[Styled] = []
        for at, (text, style) in enumerate(row[:-1]):
            fill = " " * (widths[at] - cells_of(text))
            pair: StyledLine = (
                ((fill, ""), (text, style)) if at in right else ((text, style), (fill, ""))
            )
            line += (*pair, (" " * gap, ""))
        last, style = row[-1]
        if width is not None:
            first, *rest = wrapped(styled(last, style), width, indent)
            yield (*line, *first[1:])
            yield from rest
        else:
            fill = " " * (widths[-1] - cells_of(last)) if len(row) - 1 in right else ""
            yield (*line, (fill, ""), (last, style))


def header_row(*names: str) -> Sequence[Styled]:
    """The first row of a table."""
    return [(name, "bold") for name in names]
