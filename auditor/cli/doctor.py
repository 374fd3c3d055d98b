"""The `audit doctor` command."""

from importlib.util import find_spec
from pathlib import Path

from auditor.audit.pipeline import audit
from auditor.cli.console import (
    exit_code,
    put,
    talk,
    terminal,
)
from auditor.options import AuditRequest, Source


def doctor(  # noqa: PLR0913 - one parameter for each option
    model: str,
    *,
    target: str | None = None,
    headers: bool = False,
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Examine why MODEL writes gibberish, or never stops.

    A line is ok if files were compared and the audit found nothing, else wrong or a note with what
    to do, or not there, not needed, not checked or cannot tell with the reason. Numbers of local
    files are read too, if numpy is installed. Exit codes: those of `audit check`.
    """
    from auditor.formats import doctor as page  # noqa: PLC0415 - for this alone

    values = Path(model).exists() and not headers and find_spec("numpy") is not None
    request = AuditRequest(model=model, target=target, source=source, token=token, values=values)
    outcome = audit(request, say=talk(quiet=quiet))
    width, color = terminal()
    if not quiet:
        put(page.render(outcome, width=width, color=color))
    return exit_code(outcome)
