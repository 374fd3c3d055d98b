"""The `audit snapshot` command: a file with everything that an audit reads."""

from pathlib import Path
from typing import Annotated

import typer

from auditor.checkpoint.selecting import with_companions
from auditor.cli.console import (
    UNAUDITED,
    ModelArgument,
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
from auditor.errors import SourceError
from auditor.functions import snapshot_content
from auditor.messages import quoted


def snapshot(
    model: ModelArgument,
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
    """Record what an audit of MODEL reads, to audit it offline."""
    tell = talk(quiet=quiet)
    with guarded():
        try:
            fetched = fetch(
                model, source=source.value, token=token, say=tell, choose=with_companions
            )
            content = snapshot_content(fetched, output.name)
        except SourceError as error:
            fail(UNAUDITED, f"{model}: {error.reason}: {error}")
        write(output, content)
        tell(f"wrote {quoted(str(output))}, {len(content):,} bytes")
