"""The `audit snapshot` command: a file with everything that an audit reads."""

from pathlib import Path

from auditor.checkpoint.selecting import with_companions
from auditor.cli.console import CLEAN, talk, write
from auditor.downloader.fetching import fetch
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
) -> int:
    """Record what an audit of MODEL reads, to audit it offline."""
    tell = talk(quiet=quiet)
    fetched = fetch(model, source=source, token=token, say=tell, choose=with_companions)
    content = snapshot_content(fetched, output.name)
    write(output, content)
    tell(f"wrote {quoted(str(output))}, {len(content):,} bytes")
    return CLEAN
