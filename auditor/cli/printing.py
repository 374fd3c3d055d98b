"""Reports on standard output, or in files, in the format that was asked for."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path

from auditor.audit.guard import outcome_of
from auditor.cli.console import say, terminal, write
from auditor.errors import Reason, UsageError
from auditor.formats import FORMATS, View
from auditor.formats.text import printable
from auditor.messages import quoted
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
) -> Report | Unaudited:
    """A report to stdout, or one line to stderr if there is no report; what was printed."""
    said = (outcome.observed, outcome.expected, outcome.findings)
    known = isinstance(outcome, Report) or any(said)
    if not quiet and (known or form is not FormatChoice.TERMINAL):
        outcome, text = outcome_of(
            lambda: (outcome, _text(outcome, form, depth)),
            lambda detail: _crashed_text(outcome, detail, form, depth),
        )
        sys.stdout.write(text)
        sys.stdout.flush()
    if isinstance(outcome, Unaudited):
        say(f"{printable(outcome.requested)}: {outcome.reason}: {printable(outcome.detail)}")
    return outcome


def _text(outcome: Report | Unaudited, form: FormatChoice, depth: int | None) -> str:
    texts = rendered([outcome], form, depth)
    return texts.get("modules.csv") or next(iter(texts.values()))


def _crashed_text(
    outcome: Report | Unaudited, detail: str, form: FormatChoice, depth: int | None
) -> tuple[Unaudited, str]:
    crashed = _crashed(outcome, detail)
    if form is FormatChoice.TERMINAL:
        return crashed, ""
    return crashed, outcome_of(lambda: _text(crashed, form, depth), lambda _: "")


def _crashed(outcome: Report | Unaudited, detail: str) -> Unaudited:
    """In the place of an outcome that cannot be shown."""
    return Unaudited(
        requested=outcome.requested,
        model=outcome.model,
        commit=outcome.commit,
        source=outcome.source,
        target=outcome.target,
        reason=Reason.CRASHED,
        detail=detail,
    )


def rendered(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, depth: int | None
) -> Mapping[str, str]:
    width, color = terminal()
    view = View(depth=terminal_depth(depth), width=width, color=color)
    return FORMATS[form.value](outcomes, view)


def write_reports(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, output: Path, depth: int | None
) -> Sequence[Report | Unaudited]:
    """The reports in files; what was written, where one of them could not be rendered."""
    outcomes, texts = outcome_of(
        lambda: (outcomes, rendered(outcomes, form, depth)),
        lambda _: _without_crashes(outcomes, form, depth),
    )
    for name, text in texts.items():
        write(output / name if len(texts) > 1 else output, text.encode())
    return outcomes


def _without_crashes(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, depth: int | None
) -> tuple[Sequence[Report | Unaudited], Mapping[str, str]]:
    sound: list[Report | Unaudited] = []
    for outcome in outcomes:
        shown = outcome_of(partial(_if_rendered, outcome, form, depth), partial(_crashed, outcome))
        if shown is not outcome and isinstance(shown, Unaudited):
            say(f"{printable(shown.requested)}: {shown.reason}: {shown.detail}")
        sound.append(shown)
    return sound, rendered(sound, form, depth)


def _if_rendered(
    outcome: Report | Unaudited, form: FormatChoice, depth: int | None
) -> Report | Unaudited:
    rendered([outcome], form, depth)
    return outcome
