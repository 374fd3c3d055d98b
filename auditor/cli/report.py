"""The `audit report` command: options in, exit code out; auditor.sweep.reporting does the work."""

import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from auditor.cli.console import UNAUDITED, refusing_writes, say
from auditor.cli.sweep import sweep_exit_code
from auditor.messages import quoted
from auditor.options import FailOn

_MOST_NEWS = 10  # most lines about new findings


def report(  # noqa: PLR0913 - one parameter for each option
    store: Path = Path("sweep.sqlite"),
    *,
    night: str | None = None,
    output: Path | None = None,
    baseline: Path | None = None,
    sarif: Path | None = None,
    parquet: bool = False,
    depth: int | None = None,
    fail_on: FailOn = FailOn.WARNING,
    quiet: bool = False,
) -> int:
    """Write the reports of a night: tables, changes and a page.

    Exit codes: 0 no findings, 1 findings that no baseline accepts, 2 usage,
    3 some models could not be audited; the worst wins.
    """
    from auditor.sweep.reporting import night as reporting  # noqa: PLC0415 - for this command alone

    gc.enable()  # main turns collection off for commands that end before cycles matter
    wanted = reporting.Wanted(
        folder=output, baseline=baseline, sarif=sarif, parquet=parquet, depth=depth
    )
    with refusing_writes(output or store, is_named=False):
        written = reporting.write_night(store, night=night, wanted=wanted)
    for line in (*written.gaps, *(() if quiet else _lines(written.folder, written.summary))):
        say(line)
    code = sweep_exit_code(written.alarms, fail_on)
    return max(code, UNAUDITED) if written.gaps else code


def _lines(folder: Path, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the baseline, new and fixed findings, unaudited models, and the night."""
    from auditor.sweep.reporting.heading import counts_in_words  # noqa: PLC0415 - as above

    for note in (summary["baseline"] or {}).get("notes", ()):
        yield f"baseline: {note}"
    for key, state in (("news", "new or changed"), ("fixed", "fixed")):
        items = summary[key]
        for item in items["listed"][:_MOST_NEWS]:
            inside = f" ({item['component']})" if item["component"] else ""
            by = f" (pushed by {authors})" if (authors := item["commit_authors"]) else ""
            yield f"{item['change']}: {item['model']}{inside}: {item['what']}: {item['said']}{by}"
        if more := len(items["listed"][_MOST_NEWS:]) + items["more"]:
            yield f"and {more:,} more {state}, in {quoted(str(folder / 'changes.csv'))}"
    unaudited = summary["unaudited"]
    for one in unaudited["listed"][:_MOST_NEWS]:
        yield f"not audited: {one['model']}: {one['reason']}: {one['detail']}"
    if more := len(unaudited["listed"][_MOST_NEWS:]) + unaudited["more"]:
        yield f"and {more:,} more not audited, in {quoted(str(folder / 'models.csv'))}"
    yield f"wrote {quoted(str(folder))}: {counts_in_words(summary)}"
