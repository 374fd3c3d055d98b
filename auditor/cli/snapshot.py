"""`audit snapshot`: what an audit of a model reads, in one file."""

from pathlib import Path
from typing import Annotated

import typer

from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.snapshot import Snapshot
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.cli.console import (
    UNAUDITED,
    QuietOption,
    SourceChoice,
    SourceOption,
    TokenOption,
    fail,
    guarded,
    talk,
    write,
)
from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted


def snapshot(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", show_default=False, help="As for audit MODEL.")
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="The file to write; a name that ends in .gz is compressed.",
        ),
    ],
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Record config, headers, index and sizes of MODEL in one small file, to audit it offline."""
    tell = talk(quiet=quiet)
    with guarded():
        try:
            found = fetch(model, source=source.value, token=token, say=tell, choose=with_companions)
            content = _recorded(found, output.name)
        except SourceError as error:
            fail(UNAUDITED, f"{model}: {error.reason}: {error}")
        write(output, content)
        tell(f"wrote {quoted(str(output))}, {len(content):,} bytes")


def _recorded(found: Snapshot, name: str) -> bytes:
    """A snapshot file that can be read again; SourceError where there is too much for that."""
    content = dump(found, name)
    try:
        load(content, name)
    except UsageError as fault:
        raise SourceError(Reason.TOO_LARGE, f"no snapshot is written: {fault}") from None
    return content
