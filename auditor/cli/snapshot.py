"""The `audit snapshot` command: a file with everything that an audit reads."""

from pathlib import Path

from auditor.checkpoint.selecting import with_companions
from auditor.cli.console import (
    UNAUDITED,
    fail,
    guarded,
    talk,
    write,
)
from auditor.downloader.fetching import fetch
from auditor.errors import SourceError
from auditor.functions import snapshot_content
from auditor.messages import quoted
from auditor.options import Source


def snapshot(
    model: str,
    *,
    output: Path,
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> None:
    """Record what an audit of MODEL reads, to audit it offline."""
    tell = talk(quiet=quiet)
    with guarded():
        try:
            fetched = fetch(model, source=source, token=token, say=tell, choose=with_companions)
            content = snapshot_content(fetched, output.name)
        except SourceError as error:
            fail(UNAUDITED, f"{model}: {error.reason}: {error}")
        write(output, content)
        tell(f"wrote {quoted(str(output))}, {len(content):,} bytes")
