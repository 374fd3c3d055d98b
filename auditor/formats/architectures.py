"""The architectures with a closed form, as a table: model type, classes."""

from collections.abc import Mapping, Sequence

from auditor.formats.layout import columns, header_row, lines_text, styled, wrapped


def render(
    types: Mapping[str, Sequence[str]], papers: Sequence[str], width: int, *, color: bool
) -> str:
    """One row a model type, then the sums; the classes are listed in full.

    `papers` are the models that can be explained by their name alone.
    """
    rows = [(name, f"{len(classes)}", ", ".join(classes)) for name, classes in types.items()]
    table = columns([header_row("model type", "classes", ""), *rows], right={1}, width=width)
    known = f"Known by name, for audit explain: {', '.join(papers)}."
    lines = (*table, (), styled(_sum(types)), *wrapped(known, width))
    return lines_text(lines, color=color)


def markdown(types: Mapping[str, Sequence[str]]) -> str:
    """The README's table."""
    rows = (f"| {name} | {len(classes)} |\n" for name, classes in types.items())
    return f"| model type | classes |\n|---|--:|\n{''.join(rows)}\n{_sum(types)}\n"


def _sum(types: Mapping[str, Sequence[str]]) -> str:
    classes = {name for each in types.values() for name in each}
    return f"{len(types)} model types, {len(classes)} classes, each from a closed form."
