"""The `audit diff` command, which compares two checkpoints."""

from typing import Annotated

import typer

from auditor.audit.pipeline import diff as compared
from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    FileOption,
    QuietOption,
    SourceChoice,
    SourceOption,
    TokenOption,
    fail,
    guarded,
    put,
    talk,
)
from auditor.errors import SourceError, UsageError
from auditor.formats.comparison import comparison_tables
from auditor.formats.tables import TABLE_FORMATS
from auditor.messages import quoted

_FOR_PEOPLE = frozenset({"terminal", "markdown"})


def diff(  # noqa: PLR0913 - one parameter for each option
    first: Annotated[
        str, typer.Argument(metavar="A", show_default=False, help="As for audit MODEL.")
    ],
    second: Annotated[str, typer.Argument(metavar="B", show_default=False, help="Likewise.")],
    *,
    form: Annotated[
        str, typer.Option("--format", help="terminal, markdown, csv, json or latex.")
    ] = "terminal",
    output: FileOption = None,
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what B has otherwise than A: what was lost first, then tensors, config keys, modules.

    A and B may be models, revisions, folders, snapshots; of any format, quantized or not.

    Exit codes: 0 the same, 1 different, 2 usage, 3 one of them could not be read.
    """
    with guarded():
        if form not in TABLE_FORMATS:
            raise UsageError(f"--format {quoted(form)}: one of {', '.join(TABLE_FORMATS)}")
        tell = talk(quiet=quiet)
        try:
            found = compared(first, second, source=source.value, token=token, say=tell)
        except SourceError as error:
            fail(UNAUDITED, f"{error.reason}: {error}")
        most = 40 if form in _FOR_PEOPLE else None
        text = TABLE_FORMATS[form](comparison_tables(found, most=most))
        if output is not None or not quiet:
            put(text, output)
    raise typer.Exit(CLEAN if found.same else FINDINGS)
