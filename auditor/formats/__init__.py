"""Formats: pure functions of reports. Names come from strangers, and each format escapes them.

A module whose format is one text has a function `render`, which returns that text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from auditor.formats import as_csv, as_json
from auditor.report import Report, Unaudited


@dataclass(frozen=True, kw_only=True)
class View:
    """How a person wants to see reports; the formats for machines always give all of it."""

    depth: int = 2  # of the module table
    width: int = 80  # columns of the terminal
    color: bool = False
    verbose: bool = False  # every folded name instead of the first few


Format = Callable[[Sequence[Report | Unaudited], View], Mapping[str, str]]


def _terminal(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    from auditor.formats.terminal import render  # noqa: PLC0415 - rich takes 12 ms to import

    texts = (
        render(outcome, depth=view.depth, width=view.width, color=view.color, verbose=view.verbose)
        for outcome in outcomes
    )
    return {"report.txt": "\n".join(texts)}


def _json(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    return {"report.jsonl": "".join(f"{as_json.render(outcome)}\n" for outcome in outcomes)}


def _csv(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    return as_csv.files(outcomes)


# By the name that --format takes: the files that reports become, name -> text. Text is to be
# written as UTF-8 and without translating line ends.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {"terminal": _terminal, "json": _json, "csv": _csv}
)
