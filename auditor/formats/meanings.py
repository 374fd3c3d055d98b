"""The meanings of findings and causes, and what to do: read from their docstrings."""

import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Literal

from msgspec import Struct

from auditor.diagnosis.known_causes import described_causes
from auditor.findings import FINDING_KINDS, FindingKind, Severity
from auditor.formats.text import StyledLine, columns, lines_text, styled, wrapped

_TO_DO = "To do: "
_AS_SAID = "Do what the report says under `fix`: it names the fields and the tensors."


class Meaning(Struct, frozen=True, kw_only=True):
    """One kind of finding, or one cause of findings."""

    name: str
    of: Literal["finding", "cause"]
    severity: Severity | None  # None: that of the findings that the cause explains
    level: str | None  # of a cause: what was read to find it
    said: str  # one sentence or more
    details: str  # more of it, for who reads on
    to_do: str


@cache  # a page asks for each of its findings: 90 % of the time that it took
def kind_meanings() -> tuple[Meaning, ...]:
    """All kinds of findings, errors first."""
    ranks = [*Severity]
    kinds = sorted(FINDING_KINDS, key=lambda kind: ranks.index(kind.severity))
    return tuple(map(_kind, kinds))


def cause_meanings() -> tuple[Meaning, ...]:
    """All causes, in the order in which they are looked for."""
    return tuple(_cause(name, text) for name, text in described_causes().items())


def _kind(kind: type[FindingKind]) -> Meaning:
    said, details, to_do = _parts(inspect.cleandoc(kind.__doc__ or ""))
    return Meaning(
        name=kind.kind,
        of="finding",
        severity=kind.severity,
        level=None,
        said=said,
        details=details,
        to_do=to_do,
    )


def _cause(name: str, text: str) -> Meaning:
    said, details, to_do = _parts(text)
    return Meaning(
        name=name,
        of="cause",
        severity=None,
        level="headers",
        said=said,
        details=details,
        to_do=to_do,
    )


def _parts(text: str) -> tuple[str, str, str]:
    """The first paragraph, what follows it, and what to do."""
    said, *others = (" ".join(one.split()) for one in text.split("\n\n"))
    to_do = [one.removeprefix(_TO_DO) for one in others if one.startswith(_TO_DO)]
    details = " ".join(one for one in others if not one.startswith(_TO_DO))
    return said, details, to_do[0] if to_do else _AS_SAID


# --- for people ---------------------------------------------------------------------------------


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
