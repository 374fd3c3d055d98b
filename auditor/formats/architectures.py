"""The architectures with a closed form, as a table: model type, classes."""

import io
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from auditor.formats.plain_console import plain_console, without_trailing_spaces


def render(
    types: Mapping[str, Sequence[str]], papers: Sequence[str], width: int, *, color: bool
) -> str:
    """One row a model type, then the sums; the classes are listed in full.

    `papers` are the models that can be explained by their name alone.
    """
    text = io.StringIO()
    console = plain_console(text, color=color)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("model type", "classes", ""):
        table.add_column(name, justify="right" if name == "classes" else "left")
    for model_type, classes in types.items():
        table.add_row(Text(model_type), Text(str(len(classes))), Text(", ".join(classes)))
    console.print(table, width=width)
    console.print()
    console.print(Text(_sum(types)))
    console.print(Text(f"Known by name, for audit explain: {', '.join(papers)}."))
    return without_trailing_spaces(text)


def markdown(types: Mapping[str, Sequence[str]]) -> str:
    """The README's table."""
    rows = (f"| {name} | {len(classes)} |\n" for name, classes in types.items())
    return f"| model type | classes |\n|---|--:|\n{''.join(rows)}\n{_sum(types)}\n"


def _sum(types: Mapping[str, Sequence[str]]) -> str:
    classes = {name for each in types.values() for name in each}
    return f"{len(types)} model types, {len(classes)} classes, each from a closed form."
