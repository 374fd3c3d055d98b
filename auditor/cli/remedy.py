"""The `audit fix` command that the report on a folder suggests at its top."""

import shlex
from contextlib import suppress
from pathlib import Path

from auditor.checkpoint.snapshot import Source
from auditor.cli.console import keep_quiet
from auditor.errors import FixError, SourceError, UsageError
from auditor.report import Report, Unaudited

# Planning takes some audits: a second for so many tensors, or so many characters of names.
_MOST_TENSORS, _MOST_LETTERS = 20_000, 500_000


def fix_command(outcome: Report | Unaudited, target: str | None) -> tuple[str, str] | None:
    """Plan a fix as `audit fix` does; return the command and its effect, None without changes.

    Return None also if the outcome is not about a folder with findings and a single, small model.
    """
    folder = outcome.requested
    letters = sum(len(name) for finding in outcome.findings for name in finding.names)
    has_few = outcome.observed is not None and outcome.observed.tensors <= _MOST_TENSORS
    if outcome.source is not Source.FOLDER or outcome.verdict != "findings" or outcome.parts:
        return None
    if (
        not has_few
        or letters > _MOST_LETTERS
        or not folder.isprintable()
        or not Path(folder).is_dir()
    ):
        return None
    # Imported only for a folder with findings.
    from auditor.fixing.of_folder import plan_for_folder  # noqa: PLC0415
    from auditor.formats.fix_plan import effect_of  # noqa: PLC0415

    with suppress(FixError, SourceError, UsageError, OSError):
        planned = plan_for_folder(folder, target, (), keep_quiet)
        if planned.plan.changes and planned.refused is None:
            options = f" --as {shlex.quote(target)}" if target else ""
            return f"audit fix {shlex.quote(folder)}{options} --apply", effect_of(planned.plan)
    return None
