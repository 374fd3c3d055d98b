"""Kinds of findings and causes for people: one in full, or all of them in a table."""

import io
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from auditor.formats.meanings import Meaning
from auditor.formats.plain_console import plain_console, without_trailing_spaces

_CAUSES = "causes, as severe as the findings that they explain"


def render(meanings: Sequence[Meaning], *, width: int, color: bool) -> str:
    """Each in full: what it is, what it means, what to do."""
    text = io.StringIO()
    console = plain_console(text, color=color)
    for at, one in enumerate(meanings):
        if at:
            console.print()
        console.print(Text(one.name, "bold").append(f" ({_sort(one)})", "not bold"), width=width)
        for sentence in filter(None, (one.said, one.details, f"To do: {one.to_do}")):
            console.print()
            console.print(Text(sentence), width=width)
    return without_trailing_spaces(text)


def overview(meanings: Sequence[Meaning], *, width: int, color: bool) -> str:
    """A line or two for each, those of a severity together."""
    text = io.StringIO()
    console = plain_console(text, color=color)
    longest = max(len(one.name) for one in meanings)
    for group, found in groupby(meanings, lambda one: one.severity or _CAUSES):
        if text.tell():
            console.print()
        console.print(Text(group, "bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, min_width=longest)
        table.add_column()
        for one in found:
            table.add_row(Text(one.name), Text(one.said))
        console.print(Padding(table, (0, 0, 0, 2)), width=width)
    return without_trailing_spaces(text)


def meaning_table(meanings: Sequence[Meaning], heading: str) -> Iterator[str]:
    """The rows of a table: name, what it means, what to do."""
    yield f"| {heading} | what it means | what to do |"
    yield "|---|---|---|"
    for one in meanings:
        yield f"| `{one.name}` | {one.said} | {one.to_do} |"


def _sort(one: Meaning) -> str:
    if one.of == "cause":
        return f"cause, found in {one.level}; as severe as the findings that it explains"
    return f"finding, {one.severity}"
