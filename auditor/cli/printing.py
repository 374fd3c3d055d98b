"""Write reports to standard output or to files, in the requested format."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from msgspec import Struct

from auditor.audit.guard import outcome_of
from auditor.cli.console import only_ascii, put, say_reason, terminal, today, write, writing
from auditor.cli.remedy import with_fix_commands
from auditor.errors import Reason, UsageError
from auditor.formats import View
from auditor.formats.registry import FORMATS, TERMINAL, by_ending
from auditor.messages import quoted
from auditor.report import Report, Unaudited
from auditor.tensors import Depth
from auditor.version import VERSION

if TYPE_CHECKING:
    from auditor.formats.terminal import ClosingRow
    from auditor.formats.text import StyledLine

T = TypeVar("T")

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
    # Columns for a model's name, if the terminal shows one line of each model, not its report.
    name_columns: int | None = None
    quiet: bool = False  # whether no report is printed, only the closing table
    target: str | None = None  # the class that the user named


def chosen_format(form: str | None, output: Path | None) -> str:
    """Return the requested format, else the one for the file's ending, else `terminal`."""
    if form == "jsonl":  # the format json has an object a line
        return "json"
    if form is not None and form not in FORMATS:
        fault = f"{quoted(form)} is not one of {', '.join(map(quoted, FORMATS))}."
        raise typer.BadParameter(fault, param_hint="'--format'")
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


def print_outcomes(
    outcomes: Iterable[Report | Unaudited],
    form: str,
    shown: Shown,
    *,
    has_table: bool,
) -> Iterator[Report | Unaudited]:
    """Print each outcome as soon as its audit ends, and yield it; then the closing table, if any.

    An empty line separates reports from each other, and the table from what is above it.
    """
    rows = []
    for at, outcome in enumerate(outcomes):
        if at and has_table and not (shown.quiet or shown.name_columns is not None):
            put("\n")
        printed = print_outcome(outcome, form, shown)
        if has_table:
            rows.append(_closing_row(printed))
        yield printed
    if len(rows) > 1:
        _print_closing_table(rows, shown)


def print_outcome(outcome: Report | Unaudited, form: str, shown: Shown) -> Report | Unaudited:
    """Print an outcome, and on stderr why it is Unaudited; return the outcome that was printed."""
    outcome, fixed = _rendered_or_crashed(outcome, partial(with_fix_commands, target=shown.target))
    outcome = fixed or outcome
    known = (outcome.findings, outcome.unchecked, outcome.notes)
    parts = (outcome.observed, outcome.expected, *known)
    is_line, is_printed = shown.name_columns is not None, False
    has_content = isinstance(outcome, Report) or any(parts) or is_line
    if not shown.quiet and (has_content or form != TERMINAL):
        whole, (outcome, text) = outcome, _rendered_or_crashed(outcome, partial(_text, form, shown))
        if outcome is not whole and form != TERMINAL:
            _, text = _rendered_or_crashed(outcome, partial(_text, form, shown))
        if text and not (shown.tensors and form == CSV):
            put(text)
        if shown.tensors:
            outcome, _ = _rendered_or_crashed(outcome, partial(_print_tensors, form), OSError)
        sys.stdout.flush()
        # A report includes the reason and its details, a line only the reason.
        is_printed = form == TERMINAL and bool(text) and not is_line
    if not is_printed:
        say_reason(outcome)
    return outcome


def _rendered_or_crashed(
    outcome: Report | Unaudited,
    render: Callable[[Report | Unaudited], T],
    *passing: type[Exception],
) -> tuple[Report | Unaudited, T | None]:
    """Return an outcome and what `render` makes of it; if that crashes, the crash as outcome."""

    def crashed(detail: str) -> tuple[Unaudited, None]:
        unaudited = Unaudited(
            requested=outcome.requested,
            model=outcome.model,
            commit=outcome.commit,
            source=outcome.source,
            target=outcome.target,
            reason=Reason.CRASHED,
            detail=detail,
        )
        return unaudited, None

    return outcome_of(lambda: (outcome, render(outcome)), crashed, *passing)


def _closing_row(outcome: Report | Unaudited) -> "ClosingRow":
    from auditor.formats.terminal import closing_row  # noqa: PLC0415 - only for several models

    return closing_row(outcome)


def _print_closing_table(rows: Sequence["ClosingRow"], shown: Shown) -> None:
    from auditor.formats.terminal import closing_table  # noqa: PLC0415 - only for several models

    table = _lines_text(lambda width: closing_table(rows, width))
    if not shown.quiet:
        hint = "" if shown.name_columns is None else "\n-v prints the complete reports.\n"
        table = f"\n{table}{hint}"
    put(table)


def _lines_text(lines: Callable[[int], Iterable["StyledLine"]]) -> str:
    """Return lines for the terminal, from a function of its width."""
    from auditor.formats.text import as_ascii, lines_text  # noqa: PLC0415 - only for several models

    width, color = terminal()
    text = lines_text(lines(width), color=color)
    return as_ascii(text) if only_ascii(sys.stdout) else text


def _print_tensors(form: str, outcome: Report | Unaudited) -> None:
    """Print the tensors line by line, because a model may have a hundred thousand."""
    from auditor.formats import tensor_table  # noqa: PLC0415 - only for --tensors

    if form == CSV:
        columns = tensor_table.columns_of([outcome])
        sys.stdout.write(tensor_table.csv_line(columns))
        sys.stdout.writelines(tensor_table.csv_lines(outcome, columns))
    else:
        sys.stdout.writelines(tensor_table.tensor_lines(outcome))


def _text(form: str, shown: Shown, outcome: Report | Unaudited) -> str:
    if (name_columns := shown.name_columns) is not None:
        from auditor.formats.terminal import one_line  # noqa: PLC0415 - only for several models

        return _lines_text(lambda width: [one_line(outcome, width, name_columns)])
    [text] = rendered([outcome], form, shown, printed=True).values()
    return text


def rendered(
    outcomes: Sequence[Report | Unaudited],
    form: str,
    shown: Shown,
    *,
    printed: bool = False,
    date: str | None = None,
) -> Mapping[str, str]:
    """Return the texts by file name; `date` is that of the audit, today if None."""
    date = today() if date is None else date
    width, color = terminal()
    view = View(
        depth=_TABLE_DEPTH if shown.depth is None else shown.depth,
        width=width,
        color=color,
        verbose=shown.verbose,
        ascii_only=only_ascii(sys.stdout),
        auditor=VERSION,
        date=date,
        printed=printed,
    )
    return FORMATS[form](outcomes, view)


def write_reports(
    outcomes: Sequence[Report | Unaudited], form: str, output: Path, shown: Shown
) -> Sequence[Report | Unaudited]:
    """Write the reports into files; return the outcomes, Unaudited where rendering crashed."""
    if form == CSV:
        outcomes = _write_tensors(outcomes, output)
    texts = outcome_of(lambda: rendered(outcomes, form, shown), lambda _: None)
    if texts is None:
        tried = [
            _rendered_or_crashed(one, lambda one: rendered([one], form, shown))[0]
            for one in outcomes
        ]
        for before, after in zip(outcomes, tried, strict=True):
            if after is not before:
                say_reason(after)
        outcomes, texts = tried, rendered(tried, form, shown)
    for name, text in texts.items():
        if len(texts) > 1:
            write(Path(name), text.encode(), output)
        else:
            write(output, text.encode())
    return outcomes


def _write_tensors(
    outcomes: Sequence[Report | Unaudited], folder: Path
) -> Sequence[Report | Unaudited]:
    """Write tensors.csv line by line; return the outcomes, as `write_reports` does."""
    from auditor.formats import tensor_table  # noqa: PLC0415 - only for CSV

    columns = tensor_table.columns_of(outcomes)
    with writing(Path(_TENSORS_CSV), folder) as file:

        def put(outcome: Report | Unaudited) -> None:
            file.writelines(line.encode() for line in tensor_table.csv_lines(outcome, columns))

        file.write(tensor_table.csv_line(columns).encode())
        return [_rendered_or_crashed(one, put, OSError)[0] for one in outcomes]
