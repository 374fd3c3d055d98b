"""Text of reports: untrusted made safe to show, too long cut, bytes as people say them."""

import re
from collections.abc import Iterable

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_LONGEST = 900  # characters of a folded name that is never cut
_PARTS = re.compile(r"(?:[^.{]|\{[^{}]*\}|\{)+")  # of a name; a dot within braces parts nothing
_ASCII = str.maketrans(
    {
        "\N{FULL BLOCK}": "#",
        "\N{LEFT ONE EIGHTH BLOCK}": "|",
        "\N{MIDDLE DOT}": "-",
        _ELLIPSIS: "~",
    }
)


def printable(text: str) -> str:
    r"""The text with every character that is not plainly visible written out: ESC as \x1b.

    That is all that str.isprintable denies: control characters, line ends, bidi overrides, zero
    widths, lone surrogates, spaces other than the space. A backslash stays one, for the sake of
    Windows paths; the JSON output is the one to tell a real ESC from these four characters.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def cut_middle(text: str, room: int) -> str:
    """At most `room` terminal cells of a text: both its ends, where it is longer.

    A character counts for one cell at least: a thousand combining marks take no cell, and yet they
    must not all be shown.
    """
    if _fits(text, room):
        return text

    def fitting(chars: Iterable[str], room: int) -> str:
        kept = []
        for char in chars:
            room -= max(1, cells_of(char))
            if room < 0:
                break
            kept.append(char)
        return "".join(kept)

    end = fitting(reversed(text[-room:]), (room - 1) // 2)
    start = fitting(text[:room], room - 1 - (room - 1) // 2)
    return start + _ELLIPSIS + end[::-1]


def cut_name(name: str, room: int) -> str:
    """At most `room` cells of a folded name: whole parts at both its ends, and none within braces.

    A name of one part is cut in its middle, unless it has braces: then it stays whole, but for
    those that nobody reads.
    """
    if _fits(name, room):
        return name
    parts = _PARTS.findall(name)
    for kept in range(min(len(parts) - 1, room), 1, -1):  # each takes a cell at least
        ends = (*parts[: kept // 2], _ELLIPSIS, *parts[len(parts) - (kept - kept // 2) :])
        if _fits(cut := ".".join(ends), room):
            return cut
    if len(parts) > 1 and _fits(cut := f"{_ELLIPSIS}.{parts[-1]}", room):
        return cut
    return name if "{" in name and len(name) <= _LONGEST else cut_middle(name, room)


def _fits(text: str, room: int) -> bool:
    return len(text) <= room and cells_of(text) <= room


def cells_of(text: str) -> int:
    """How many cells of a terminal a printable text takes."""
    if text.isascii() or text.translate(_ASCII).isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - nearly all names are ASCII

    return cell_len(text)


def as_ascii(text: str) -> str:
    """The signs that reports are drawn with, for terminals that have only ASCII."""
    return text.translate(_ASCII)


def counted(count: int, noun: str) -> str:
    """`1 name`, `1,024 names`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def size(count: int, digits: int | None = None) -> str:
    """Write a size as people do: `14.96 GiB`, or `512 bytes` if it is below 1,024 bytes.

    `digits` is the number of significant digits.
    """
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    if not unit:
        return f"{count} bytes"
    decimals = 2 if digits is None else max(0, digits - len(str(int(value))))
    return f"{value:,.{decimals}f} {_UNITS[unit]}"
