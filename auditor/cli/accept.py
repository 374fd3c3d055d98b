"""The `audit accept` command: a reviewer's decision, written into the baseline."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from auditor.cli.console import UNAUDITED, fail, guarded, say
from auditor.errors import UsageError
from auditor.formats.text import counted
from auditor.messages import quoted


def accept(  # noqa: PLR0913 - one parameter for each option
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE",
            show_default=False,
            help="The store of `audit sweep`, or the folder of sweep.sqlite.",
        ),
    ],
    model: Annotated[
        str, typer.Argument(metavar="MODEL", show_default=False, help="A model, or a glob: acme/*.")
    ],
    *,
    kind: Annotated[
        str,
        typer.Option(
            show_default=False, help="The kind of finding, or the reason of an unaudited model."
        ),
    ],
    by: Annotated[str, typer.Option(show_default=False, help="The reviewer who decides.")],
    reason: Annotated[str, typer.Option(show_default=False, help="The reason, as text.")],
    until: Annotated[
        str, typer.Option(metavar="DATE", show_default=False, help="The last night: 2027-03-31.")
    ],
    name: Annotated[
        str, typer.Option(metavar="GLOB", help="Accept findings whose tensors or files match.")
    ] = "*",
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default="baseline.toml beside the store", help="TOML or JSON."
        ),
    ] = None,
) -> None:
    """Accept findings of the latest night until a date.

    `audit report --baseline` applies the decision.
    Exit codes: 0 written, 2 usage, or no such finding; 3 the file cannot be written.
    """
    from auditor.sweep.reporting.baseline import BaselineEntry  # noqa: PLC0415 - as above
    from auditor.sweep.reporting.baseline import accept as append  # noqa: PLC0415 - as above

    with guarded():
        for option, text in (
            ("--by", by),
            ("--reason", reason),
            ("--name", name),
            ("MODEL", model),
        ):
            if not text.strip():
                raise UsageError(f"{option} is empty, expected text")
        entry = BaselineEntry(
            kind=kind, model=model, name=name, reason=reason, by=by, expires=_date(until)
        )
        try:
            path, count = append(store, entry, baseline=baseline)
        except OSError as error:
            where = quoted(str(error.filename or baseline or store))
            fail(UNAUDITED, f"cannot write {where}: {error.strerror or error}")
        say(f"wrote {quoted(str(path))}: {counted(count, 'finding')} accepted until {until}")


def _date(text: str) -> date:
    """Return the date of --until; raise UsageError if it is not a date, or is over."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until is {quoted(text)}, expected a date: 2027-03-31") from None
    if day < datetime.now(UTC).date():
        raise UsageError(f"--until is {day}, expected today or a later day")
    return day
