"""Kinds of findings and causes for people: one in full, or all of them in a table."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from auditor.formats.layout import StyledLine, columns, lines_text, styled, wrapped
from auditor.formats.meanings import Meaning

_CAUSES = "causes, as severe as the findings that they explain"


def render(meanings: Sequence[Meaning], *, width: int, color: bool) -> str:
    """Each in full: what it is, what it means, what to do."""
    return "\n".join(lines_text(_in_full(one, width), color=color) for one in meanings)


def _in_full(one: Meaning, width: int) -> Iterator[StyledLine]:
    yield from wrapped(((one.name, "bold"), (f" ({_sort(one)})", "")), width)
    for sentence in filter(None, (one.said, one.details, f"To do: {one.to_do}")):
        yield ()
        yield from wrapped(sentence, width)


def overview(meanings: Sequence[Meaning], *, width: int, color: bool) -> str:
    """A line or two for each, those of a severity together."""
    longest = max(len(one.name) for one in meanings)
    groups = []
    for group, found in groupby(meanings, lambda one: one.severity or _CAUSES):
        rows = [(f"  {one.name:<{longest}}", one.said) for one in found]
        lines = (styled(group, "bold"), *columns(rows, gap=2, width=width))
        groups.append(lines_text(lines, color=color))
    return "\n".join(groups)


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
