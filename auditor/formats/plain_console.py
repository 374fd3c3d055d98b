"""What the texts for people are made with: a console without surroundings, and a few words."""

import io
from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from auditor.formats.text import cut_middle, printable

_WIDEST = 10_000  # no limit: a table may be wider than asked, never cut in its figures
_MAX_TEXT = 1000  # characters of a sentence or a formula: more is a stranger's name in it


def plain_console(text: io.StringIO, *, color: bool) -> Console:
    """A console that takes nothing from the environment it happens to run in."""
    return Console(
        file=text,
        width=_WIDEST,
        color_system="standard" if color else None,
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )


def without_trailing_spaces(text: io.StringIO) -> str:
    """What was printed, line by line."""
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def grid(rows: Iterable[tuple[str, str]], width: int) -> Table:
    """Labels, and beside them what each says."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(min_width=9)
    made.add_column(overflow="fold", max_width=max(20, width - 12))
    for label, text in rows:
        made.add_row(Text(label, style="dim"), Text(shown(text)))
    return made


def indented(text: str, by: int) -> Padding:
    return Padding(Text(text, overflow="fold"), (0, 0, 0, by), expand=False)


def shown(text: str) -> str:
    return cut_middle(printable(text), _MAX_TEXT)
