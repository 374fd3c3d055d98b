"""Reports on standard output, or in files, in the format that was asked for."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from auditor.audit.guard import outcome_of
from auditor.cli.console import only_ascii, say, terminal, write
from auditor.errors import Reason, UsageError
from auditor.formats.registry import FORMATS, TERMINAL, by_ending
from auditor.formats.text import printable
from auditor.formats.view import View
from auditor.messages import quoted
from auditor.report import Report, Unaudited

_TABLE_DEPTH = 2
_DEEPER = 2  # so that the layers of a module can be told: `encoder` has `encoder.layer.0`


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How much of a report was asked for."""

    depth: int | None = None  # of the module rows; None: as the format has it
    verbose: bool = False


def known_format(form: str | None) -> str | None:
    """The name as it is; raises typer.BadParameter if no format has it."""
    if form is None or form in FORMATS:
        return form
    raise typer.BadParameter(f"{quoted(form)} is not one of {', '.join(map(quoted, FORMATS))}.")


def meanings() -> str:
    """What each format is, for the help text."""
    return "; ".join(f"{name}: {form.meaning}" for name, form in FORMATS.items()) + "."


def chosen_format(form: str | None, output: Path | None) -> str:
    """The format by its name, else by the ending of the file, else the terminal's."""
    if form is not None:
        return form
    if output is None:
        return TERMINAL
    if found := by_ending(output.suffix):
        return found
    endings = ", ".join(ending for each in FORMATS.values() for ending in each.endings)
    raise UsageError(f"-o {quoted(str(output))}: say --format, or end the name in {endings}")


def counted_depth(form: str, depth: int | None) -> int | None:
    """How deep modules are counted: for the terminal a little deeper than they are shown."""
    if form != TERMINAL:
        return depth
    return (_TABLE_DEPTH if depth is None else depth) + _DEEPER


def print_outcome(
    outcome: Report | Unaudited, form: str, shown: Shown, *, quiet: bool
) -> Report | Unaudited:
    """A report to stdout, or one line to stderr if there is no report; what was printed."""
    said = (outcome.observed, outcome.expected, outcome.findings)
    known, told = isinstance(outcome, Report) or any(said), False
    if not quiet and (known or form != TERMINAL):
        outcome, text = outcome_of(
            lambda: (outcome, _text(outcome, form, shown)),
            lambda detail: _crashed_text(outcome, detail, form, shown),
        )
        sys.stdout.write(text)
        sys.stdout.flush()
        told = form == TERMINAL and bool(text)  # in the verdict
    if isinstance(outcome, Unaudited) and not told:
        say(f"{printable(outcome.requested)}: {outcome.reason}: {printable(outcome.detail)}")
    return outcome


def _text(outcome: Report | Unaudited, form: str, shown: Shown) -> str:
    [text] = rendered([outcome], form, shown, printed=True).values()
    return text


def _crashed_text(
    outcome: Report | Unaudited, detail: str, form: str, shown: Shown
) -> tuple[Unaudited, str]:
    crashed = _crashed(outcome, detail)
    if form == TERMINAL:
        return crashed, ""
    return crashed, outcome_of(lambda: _text(crashed, form, shown), lambda _: "")


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
    outcomes: Sequence[Report | Unaudited], form: str, shown: Shown, *, printed: bool = False
) -> Mapping[str, str]:
    width, color = terminal()
    view = View(
        depth=_TABLE_DEPTH if shown.depth is None else shown.depth,
        width=width,
        color=color,
        verbose=shown.verbose,
        ascii_only=only_ascii(sys.stdout),
        printed=printed,
    )
    return FORMATS[form](outcomes, view)


def write_reports(
    outcomes: Sequence[Report | Unaudited], form: str, output: Path, shown: Shown
) -> Sequence[Report | Unaudited]:
    """The reports in files; what was written, where one of them could not be rendered."""
    outcomes, texts = outcome_of(
        lambda: (outcomes, rendered(outcomes, form, shown)),
        lambda _: _without_crashes(outcomes, form, shown),
    )
    for name, text in texts.items():
        write(output / name if len(texts) > 1 else output, text.encode())
    return outcomes


def _without_crashes(
    outcomes: Sequence[Report | Unaudited], form: str, shown: Shown
) -> tuple[Sequence[Report | Unaudited], Mapping[str, str]]:
    sound: list[Report | Unaudited] = []
    for outcome in outcomes:
        found = outcome_of(partial(_if_rendered, outcome, form, shown), partial(_crashed, outcome))
        if found is not outcome and isinstance(found, Unaudited):
            say(f"{printable(found.requested)}: {found.reason}: {found.detail}")
        sound.append(found)
    return sound, rendered(sound, form, shown)


def _if_rendered(outcome: Report | Unaudited, form: str, shown: Shown) -> Report | Unaudited:
    rendered([outcome], form, shown)
    return outcome
