"""Text of reports: what is untrusted made safe to show, and what is too long cut."""

from collections.abc import Iterable

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


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
    from rich.cells import cell_len  # noqa: PLC0415 - not for CSV, which is never cut

    if len(text) <= room and cell_len(text) <= room:
        return text

    def fitting(chars: Iterable[str], room: int) -> str:
        kept = []
        for char in chars:
            room -= max(1, cell_len(char))
            if room < 0:
                break
            kept.append(char)
        return "".join(kept)

    end = fitting(reversed(text[-room:]), (room - 1) // 2)
    start = fitting(text[:room], room - 1 - (room - 1) // 2)
    return start + _ELLIPSIS + end[::-1]
