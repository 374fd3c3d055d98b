"""Write reports to standard output or to files, in the requested format."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import typer
from msgspec import Struct

from auditor.audit.guard import outcome_of
from auditor.cli.console import only_ascii, put, say, terminal, write, writing
from auditor.cli.remedy import fix_command
from auditor.errors import Reason, UsageError
from auditor.formats import View
from auditor.formats.registry import FORMATS, TERMINAL, by_ending
from auditor.messages import quoted
from auditor.report import Report, Unaudited
from auditor.tensors import Depth

_TABLE_DEPTH = 2
CSV = "csv"
_TENSORS_CSV = "tensors.csv"
# Levels below a module at which its layers are counted: `encoder` has `encoder.layer.0`.
_DEEPER = 2


class Shown(Struct, frozen=True, kw_only=True):
    """The parts of a report that the user requested."""

    depth: int | None = None  # levels of the module rows; None: the default of the format
    verbose: bool = False
    tensors: bool = False  # whether each tensor is listed
    target: str | None = None  # the class that the user named


def known_format(form: str | None) -> str | None:
    """Return the name of a format; raise typer.BadParameter if there is no such format."""
    if form is None or form in FORMATS:
        return form
    if form == "jsonl":  # the format json has an object a line
        return "json"
    raise typer.BadParameter(f"{quoted(form)} is not one of {', '.join(map(quoted, FORMATS))}.")


def chosen_format(form: str | None, output: Path | None) -> str:
    """Return the requested format, else the one for the file's ending, else `terminal`."""
    if form is not None:
        return form
    if output is None:
        return TERMINAL
    if form_of_file := by_ending(output.suffix):
        return form_of_file
    endings = ", ".join(ending for each in FORMATS.values() for ending in each.endings)
    raise UsageError(
        f"-o is {quoted(str(output))}, expected a name that ends in {endings}; or give --format"
    )


def counted_depth(form: str, depth: int | None) -> int | Depth | None:
    """Return the depth to which modules are counted; for the terminal, deeper than it shows."""
    if form != TERMINAL:
        return depth
    shown = _TABLE_DEPTH if depth is None else depth
    return Depth(shown + _DEEPER, layers=shown)


def require_format_of_tensors(form: str) -> None:
    """Raise UsageError if a format has no table of tensors."""
    if form not in {TERMINAL, CSV}:
        raise UsageError(f"--tensors needs --format {TERMINAL} or {CSV}, not {form}")


def print_outcome(
    outcome: Report | Unaudited, form: str, shown: Shown, *, quiet: bool
) -> Report | Unaudited:
    """Print an outcome, and on stderr why it is Unaudited; return the outcome that was printed."""
    parts = (outcome.observed, outcome.expected, outcome.findings)
    has_content, is_printed = isinstance(outcome, Report) or any(parts), False
    if not quiet and (has_content or form != TERMINAL):
        outcome, text = outcome_of(
            lambda: (outcome, _text(outcome, form, shown)),
            lambda detail: _crashed_text(outcome, detail, form, shown),
        )
        if not (shown.tensors and form == CSV):
            put(text)
        if shown.tensors:
            outcome = _print_tensors(outcome, form)
        sys.stdout.flush()
        is_printed = form == TERMINAL and bool(text)  # the text includes the reason
    if isinstance(outcome, Unaudited) and not is_printed:
        say(f"{outcome.requested}: {outcome.reason}: {outcome.detail}")
    return outcome


def print_closing_table(outcomes: Sequence[Report | Unaudited]) -> None:
    """Print the verdicts of several models, the worst last."""
    from auditor.formats.terminal import closing_table  # noqa: PLC0415 - only for several models
    from auditor.formats.text import as_ascii, lines_text  # noqa: PLC0415 - likewise

    width, color = terminal()
    text = lines_text(closing_table(outcomes, width), color=color)
    put(as_ascii(text) if only_ascii(sys.stdout) else text)


def _print_tensors(outcome: Report | Unaudited, form: str) -> Report | Unaudited:
    """Print the tensors line by line, because a model may have a hundred thousand."""
    from auditor.formats import tensor_table  # noqa: PLC0415 - only for --tensors

    def work() -> Report | Unaudited:
        if form == CSV:
            columns = tensor_table.columns_of([outcome])
            sys.stdout.write(tensor_table.csv_line(columns))
            sys.stdout.writelines(tensor_table.csv_lines(outcome, columns))
        else:
            sys.stdout.writelines(tensor_table.tensor_lines(outcome))
        return outcome

    return outcome_of(work, partial(_crashed, outcome), OSError)


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
    """Return an Unaudited outcome in place of an outcome whose rendering raised an exception."""
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
        fix=fix_command(outcomes[0], shown.target) if printed and form == TERMINAL else None,
    )
    return FORMATS[form](outcomes, view)


def write_reports(
    outcomes: Sequence[Report | Unaudited], form: str, output: Path, shown: Shown
) -> Sequence[Report | Unaudited]:
    """Write the reports into files; return the outcomes, Unaudited where rendering crashed."""
    if form == CSV:
        outcomes = _write_tensors(outcomes, output / _TENSORS_CSV)
    outcomes, texts = outcome_of(
        lambda: (outcomes, rendered(outcomes, form, shown)),
        lambda _: _without_crashes(outcomes, form, shown),
    )
    for name, text in texts.items():
        write(output / name if len(texts) > 1 else output, text.encode())
    return outcomes


def _write_tensors(
    outcomes: Sequence[Report | Unaudited], path: Path
) -> Sequence[Report | Unaudited]:
    """Write tensors.csv line by line; return the outcomes, as `write_reports` does."""
    from auditor.formats import tensor_table  # noqa: PLC0415 - only for CSV

    columns = tensor_table.columns_of(outcomes)

    def put(file: BinaryIO, outcome: Report | Unaudited) -> Report | Unaudited:
        file.writelines(line.encode() for line in tensor_table.csv_lines(outcome, columns))
        return outcome

    with writing(path) as file:
        file.write(tensor_table.csv_line(columns).encode())
        return [
            outcome_of(partial(put, file, one), partial(_crashed, one), OSError) for one in outcomes
        ]


def _without_crashes(
    outcomes: Sequence[Report | Unaudited], form: str, shown: Shown
) -> tuple[Sequence[Report | Unaudited], Mapping[str, str]]:
    checked: list[Report | Unaudited] = []
    for outcome in outcomes:
        result = outcome_of(partial(_if_rendered, outcome, form, shown), partial(_crashed, outcome))
        if result is not outcome and isinstance(result, Unaudited):
            say(f"{result.requested}: {result.reason}: {result.detail}")
        checked.append(result)
    return checked, rendered(checked, form, shown)


def _if_rendered(outcome: Report | Unaudited, form: str, shown: Shown) -> Report | Unaudited:
    rendered([outcome], form, shown)
    return outcome
