"""cut: text that fits, with an ellipsis for its middle. Only the terminal cuts."""

from collections.abc import Iterable

from rich.cells import cell_len

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def cut(text: str, room: int) -> str:
    """At most `room` terminal cells of a text: both its ends, where it is longer.

    A character counts for one cell at least: a thousand combining marks take no cell, and yet they
    must not all be shown.
    """
    if len(text) <= room and cell_len(text) <= room:
        return text
    tail = _fitting(reversed(text[-room:]), (room - 1) // 2)
    head = _fitting(text[:room], room - 1 - (room - 1) // 2)
    return head + _ELLIPSIS + tail[::-1]


def _fitting(chars: Iterable[str], room: int) -> str:
    fitting = []
    for char in chars:
        room -= max(1, cell_len(char))
        if room < 0:
            break
        fitting.append(char)
    return "".join(fitting)
