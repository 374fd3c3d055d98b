"""Printed references: explanations of finding kinds and causes, and the architectures.

Kinds are rows of auditor/findings/kinds.py; causes have the docstrings of their modules.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from auditor.diagnosis.known_causes import described_causes
from auditor.findings import FINDING_KINDS, Severity
from auditor.formats.tables import SimpleTable, styled_rows
from auditor.formats.text import StyledLine, columns, lines_text, styled, wrapped

_TO_DO = "To do: "
_DEFAULT_ADVICE = "Do what the report says under `fix`: it names the fields and the tensors."


class Meaning(NamedTuple):
    """The meaning of a kind of finding, or of a cause."""

    name: str
    severity: Severity | None  # None: a cause is as severe as the findings that it explains
    summary: str  # one sentence or more
    details: str
    to_do: str


def kind_meanings() -> tuple[Meaning, ...]:
    """Return the meanings of all kinds of findings, errors first."""
    return tuple(
        Meaning(kind.kind, kind.severity, kind.meaning, kind.details, kind.to_do)
        for kind in sorted(FINDING_KINDS, key=lambda kind: kind.severity.rank)
    )


def cause_meanings() -> tuple[Meaning, ...]:
    """Return the meanings of all causes, in the order in which they are searched."""
    return tuple(_meaning(name, text) for name, text in described_causes().items())


def _meaning(name: str, text: str) -> Meaning:
    """Split a docstring into its first paragraph, the following ones, and the advice."""
    summary, *others = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    advice = [other.removeprefix(_TO_DO) for other in others if other.startswith(_TO_DO)]
    details = " ".join(other for other in others if not other.startswith(_TO_DO))
    return Meaning(name, None, summary, details, advice[0] if advice else _DEFAULT_ADVICE)


# --- for people ---------------------------------------------------------------------------------


_CAUSES = "causes, as severe as the findings that they explain"
_CAUSE = "cause, found in headers; as severe as the findings that it explains"


def render(meanings: Sequence[Meaning], *, width: int, color: bool) -> str:
    """Return each kind or cause in full: its meaning, details, advice."""
    return "\n".join(lines_text(_in_full(one, width), color=color) for one in meanings)


def _in_full(meaning: Meaning, width: int) -> Iterator[StyledLine]:
    sort = f"finding, {meaning.severity}" if meaning.severity else _CAUSE
    yield from wrapped(((meaning.name, "bold"), (f" ({sort})", "")), width)
    for sentence in filter(None, (meaning.summary, meaning.details, f"To do: {meaning.to_do}")):
        yield ()
        yield from wrapped(sentence, width)


def overview(meanings: Sequence[Meaning], *, width: int, color: bool) -> str:
    """Return a line or two for each kind or cause, grouped by severity."""
    longest = max(len(one.name) for one in meanings)
    groups = []
    for group, members in groupby(meanings, lambda one: one.severity or _CAUSES):
        rows = [(f"  {one.name:<{longest}}", one.summary) for one in members]
        lines = (styled(group, "bold"), *columns(rows, gap=2, width=width))
        groups.append(lines_text(lines, color=color))
    return "\n".join(groups)


# --- architectures ------------------------------------------------------------------------------


def architectures(
    types: Mapping[str, Sequence[str]],
    generated: Sequence[str],
    papers: Sequence[str],
    width: int,
    *,
    color: bool,
) -> str:
    """Return a row for each model type with its classes, then the totals.

    `generated` are types, or classes of diffusers, that only generated forms know. `papers` are the
    names of models from papers that `audit explain NAME` can explain.
    """
    rows = tuple((name, len(classes), ", ".join(classes)) for name, classes in types.items())
    table = SimpleTable("architectures", ("model type", "classes", ""), rows)
    lines = (
        *columns(styled_rows(table), right={1}, width=width),
        (),
        styled(_sum(types)),
        (),
        *wrapped(
            f"{len(generated)} more types are answered by generated forms, which were learned from "
            f"the libraries and compared with them: {', '.join(generated)}.",
            width,
        ),
        (),
        *wrapped(f"Known by name, for audit explain: {', '.join(papers)}.", width),
    )
    return lines_text(lines, color=color)


def architectures_markdown(types: Mapping[str, Sequence[str]]) -> str:
    """Return the README's table of architectures."""
    rows = (f"| {name} | {len(classes)} |\n" for name, classes in types.items())
    return f"| model type | classes |\n|---|--:|\n{''.join(rows)}\n{_sum(types)}\n"


def _sum(types: Mapping[str, Sequence[str]]) -> str:
    classes = {name for names in types.values() for name in names}
    return f"{len(types)} model types, {len(classes)} classes, each from a closed form."
