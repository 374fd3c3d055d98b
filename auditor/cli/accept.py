"""The `audit accept` command: a reviewer's decision, written into the baseline."""

from datetime import UTC, date, datetime
from pathlib import Path

from auditor.cli.console import CLEAN, refusing_writes, say
from auditor.errors import UsageError
from auditor.formats.text import counted
from auditor.messages import quoted

_MOST = 12  # accepted findings that are listed


def accept(  # noqa: PLR0913 - one parameter for each option
    store: Path,
    model: str,
    *,
    kind: str,
    by: str,
    reason: str,
    until: str,
    name: str = "*",
    baseline: Path | None = None,
) -> int:
    """Accept findings of the latest night until a date.

    KIND is a kind of finding, a cause, or a reason of unaudited models; a cause covers all findings
    that it explains. `audit report --baseline` applies the decision.

    Exit codes: 0 written, 2 usage, or no such finding; 3 the file cannot be written.
    """
    from auditor.sweep.reporting.baseline import BaselineEntry  # noqa: PLC0415 - as above
    from auditor.sweep.reporting.baseline import accept as append  # noqa: PLC0415 - as above

    for option, text in {"--by": by, "--reason": reason, "--name": name, "MODEL": model}.items():
        if not text.strip():
            raise UsageError(f"{option} is empty, expected text")
    entry = BaselineEntry(
        kind=kind, model=model, name=name, reason=reason, by=by, expires=_date(until)
    )
    with refusing_writes(baseline or store, is_named=False):
        path, covered = append(store, entry, baseline=baseline)
    for line in covered[:_MOST]:
        say(f"accepts {line}")
    if len(covered) > _MOST:
        say(f"accepts {len(covered) - _MOST:,} more, which audit report --baseline lists")
    say(f"wrote {quoted(str(path))}: {counted(len(covered), 'finding')} accepted until {until}")
    return CLEAN


def _date(text: str) -> date:
    """Return the date of --until; raise UsageError if it is not a date, or is over."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until is {quoted(text)}, expected a date: 2027-03-31") from None
    if day < datetime.now(UTC).date():
        raise UsageError(f"--until is {day}, expected today or a later day")
    return day
