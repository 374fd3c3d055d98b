"""Reports on standard output, or in files, in the format that was asked for."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from auditor.cli.console import say, terminal, write
from auditor.containers.words import quoted
from auditor.errors import UsageError
from auditor.formats import FORMATS, View
from auditor.formats.printable import printable
from auditor.report import Report, Unaudited

_TABLE_DEPTH = 2


class FormatChoice(StrEnum):
    """What a report becomes."""

    TERMINAL = "terminal"
    JSON = "json"
    CSV = "csv"


_BY_ENDING = {
    ".json": FormatChoice.JSON,
    ".jsonl": FormatChoice.JSON,
    ".txt": FormatChoice.TERMINAL,
}


def chosen_format(form: FormatChoice | None, output: Path | None) -> FormatChoice:
    if form is not None:
        return form
    if output is None:
        return FormatChoice.TERMINAL
    if output.suffix in _BY_ENDING:
        return _BY_ENDING[output.suffix]
    raise UsageError(
        f"-o {quoted(str(output))}: say --format, or end the name in {', '.join(_BY_ENDING)}"
    )


def terminal_depth(depth: int | None) -> int:
    return _TABLE_DEPTH if depth is None else depth


def print_outcome(
    outcome: Report | Unaudited, form: FormatChoice, depth: int | None, *, quiet: bool
) -> None:
    """A report to stdout, and one line to stderr where there is none to make."""
    said = (outcome.observed, outcome.expected, outcome.findings)
    known = isinstance(outcome, Report) or any(said)
    if not quiet and (known or form is not FormatChoice.TERMINAL):
        texts = rendered([outcome], form, depth)
        text = texts.get("modules.csv") or next(iter(texts.values()))
        sys.stdout.write(text)
        sys.stdout.flush()
    if isinstance(outcome, Unaudited):
        say(f"{printable(outcome.requested)}: {outcome.reason}: {printable(outcome.detail)}")


def rendered(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, depth: int | None
) -> Mapping[str, str]:
    width, color = terminal()
    view = View(depth=terminal_depth(depth), width=width, color=color)
    return FORMATS[form.value](outcomes, view)


def write_reports(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, output: Path, depth: int | None
) -> None:
    texts = rendered(outcomes, form, depth)
    for name, text in texts.items():
        write(output / name if len(texts) > 1 else output, text.encode())
