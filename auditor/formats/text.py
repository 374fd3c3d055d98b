"""Format the text of reports: escape, cut, style and wrap it, and align columns.

Rich is not used here because its import takes 40 of the 250 ms of an audit; tests compare the
wrapping with rich's.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from auditor.messages import all_printable, printable

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_LONGEST = 900  # a part in braces of at most so many characters is never cut
# The parts of a name; a dot within braces does not separate parts.
_PARTS = re.compile(r"(?:[^.{]|\{[^{}]*\}|\{)+")
_ASCII = str.maketrans(
    {
        "\N{FULL BLOCK}": "#",
        "\N{LEFT ONE EIGHTH BLOCK}": "|",
        "\N{MIDDLE DOT}": "-",
        _ELLIPSIS: "~",
        "\N{RIGHTWARDS ARROW}": ">",
    }
)


def cut_middle(text: str, room: int) -> str:
    """Escape a text, and leave out its middle if it takes more than `room` terminal cells.

    Each character counts as at least one cell, so that a thousand combining marks, which take no
    cells, are cut too.
    """
    text = printable(text)
    if _fits(text, room):
        return text

    def fitting(chars: Iterable[str], room: int) -> str:
        fitting_chars = []
        for char in chars:
            room -= max(1, cells_of(char))
            if room < 0:
                break
            fitting_chars.append(char)
        return "".join(fitting_chars)

    end = fitting(reversed(text[-room:]), (room - 1) // 2)
    start = fitting(text[:room], room - 1 - (room - 1) // 2)
    return start + _ELLIPSIS + end[::-1]


def cut_name(name: str, room: int) -> str:
    """Escape a folded name, and leave out whole parts in its middle if it takes too many cells.

    A name of one part is cut in its middle. If that part has braces it stays complete, unless it
    has more than 900 characters.
    """
    name = printable(name)
    if _fits(name, room):
        return name
    parts = _PARTS.findall(name)
    for count in range(min(len(parts) - 1, room), 1, -1):  # each part takes at least one cell
        ends = (*parts[: count // 2], _ELLIPSIS, *parts[len(parts) - (count - count // 2) :])
        if _fits(cut := ".".join(ends), room):
            return cut
    if len(parts) > 1 and _fits(cut := f"{_ELLIPSIS}.{parts[-1]}", room):
        return cut
    return name if "{" in name and len(name) <= _LONGEST else cut_middle(name, room)


def _fits(text: str, room: int) -> bool:
    return len(text) <= room and cells_of(text) <= room


def cells_of(text: str) -> int:
    """Return the number of terminal cells that an escaped text takes."""
    if text.isascii() or text.translate(_ASCII).isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - nearly all names are ASCII

    return cell_len(text)


def as_ascii(text: str) -> str:
    """Replace the characters of bars and lines, for terminals that show only ASCII."""
    return text.translate(_ASCII)


def counted(count: int, noun: str) -> str:
    """Return `1 name` or `1,024 names`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_SCALES = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3))


def short_count(count: int) -> str:
    """Return a count with one decimal: `46.7B`, `109.5M`."""
    letter, scale = next((one for one in _SCALES if count >= one[1]), ("", 1))
    return f"{count / scale:,.1f}{letter}" if letter else f"{count:,}"


_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def size(count: int, digits: int | None = None) -> str:
    """Return a size as `14.96 GiB`, or `512 bytes` if it is below 1,024 bytes.

    `digits` is the number of significant digits.
    """
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    if not unit:
        return f"{count} bytes"
    decimals = 2 if digits is None else max(0, digits - len(str(int(value))))
    return f"{value:,.{decimals}f} {_UNITS[unit]}"


# --- lines for a terminal ----------------------------------------------------------------------


Style = Literal[
    "", "bold", "dim", "green", "yellow", "cyan", "bold red", "bold yellow", "bold green"
]
Styled = tuple[str, Style]  # a text without line breaks
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
_MAX_TEXT = 1000  # most characters of a sentence or a formula; only untrusted names make one longer
_LEAST_ROOM = 16  # least cells in which text wraps, however narrow the terminal


def lines_text(lines: Iterable[StyledLine], *, color: bool = False) -> str:
    """Escape and join the lines, with their colours and without the spaces at their ends.

    All text for people passes through this function, or one line at a time through `plain_line`.
    """
    if color:
        return "".join(f"{_painted(line).rstrip()}\n" for line in lines)
    plain = all_printable(["".join(text for text, _ in line) for line in lines])
    return "".join(f"{line.rstrip()}\n" for line in plain)


def plain_line(text: str) -> str:
    """Return the text as one escaped line."""
    return f"{printable(text).rstrip()}\n"


def _painted(line: StyledLine) -> str:
    return "".join(
        f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text else text
        for text, style in _escaped(line)
    )


def _escaped(line: StyledLine) -> StyledLine:
    texts = all_printable([text for text, _ in line])
    return tuple((text, style) for text, (_, style) in zip(texts, line, strict=True))


def styled(text: str, style: Style = "") -> StyledLine:
    return ((text, style),)


def shown(text: str) -> str:
    """Escape a sentence or a formula, and cut its middle if untrusted names make it very long."""
    return cut_middle(text, _MAX_TEXT)


# --- wrapping ----------------------------------------------------------------------------------


def wrapped(line: StyledLine | str, width: int, indent: int = 0) -> Iterator[StyledLine]:
    """Indent the line and wrap it between words; split a word that is longer than a line."""
    parts = styled(line) if isinstance(line, str) else line
    escaped = _escaped(parts)
    text = "".join(part for part, _ in escaped)
    starts = [0, *_breaks(text, max(width - indent, _LEAST_ROOM))]
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        ends = start + len(text[start:end].rstrip())
        yield ((" " * indent, ""), *_between(escaped, start, ends))


def _breaks(text: str, room: int) -> Iterator[int]:
    """Yield the positions in the text where wrapped lines begin, except the first."""
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
    """Yield the part of a line between two positions, with its styles."""
    at = 0
    for text, style in line:
        yield text[max(start - at, 0) : max(end - at, 0)], style
        at += len(text)


# --- columns -----------------------------------------------------------------------------------


def columns(
    rows: Sequence[Sequence[Styled | str]],
    *,
    right: Collection[int] = (),
    gap: int = 1,
    width: int | None = None,
) -> Iterator[StyledLine]:
    """Align the cells of all rows; the cells of the columns in `right` are aligned to the right.

    No cell is cut. With a width, the text of the last column wraps within its column.
    """
    pairs: list[list[Styled]] = [
        [(cell, "") if isinstance(cell, str) else cell for cell in row] for row in rows
    ]
    escaped = iter(_escaped(tuple(pair for row in pairs for pair in row)))
    cells = [[next(escaped) for _ in row] for row in pairs]
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
            first, *continuation = wrapped(styled(last, style), width, indent)
            yield (*line, *first[1:])
            yield from continuation
        else:
            fill = " " * (widths[-1] - cells_of(last)) if len(row) - 1 in right else ""
            yield (*line, (fill, ""), (last, style))
