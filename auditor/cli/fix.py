"""The `audit fix` command."""

from collections.abc import Callable
from pathlib import Path

import typer

from auditor.audit.expected import require_known_class
from auditor.checkpoint.skipped import skipped_lines
from auditor.cli.console import (
    FINDINGS,
    UNAUDITED,
    engines_asked,
    exit_code,
    fail,
    guarded,
    put,
    say,
    talk,
)
from auditor.diagnosis.permissions import Allow
from auditor.errors import SourceError, UsageError
from auditor.fixing.of_folder import FolderPlan, fix_folder, plan_for_folder
from auditor.formats import fix_plan
from auditor.formats.json_values import json_text
from auditor.messages import quoted
from auditor.options import FailOn, TextFormat


def fix(  # noqa: PLR0913 - one parameter for each option
    folder: str,
    *,
    apply: bool = False,
    to: Path | None = None,
    link: bool = False,
    target: str | None = None,
    engines: str | None = None,
    allow: list[Allow] | None = None,
    form: TextFormat = "terminal",
    quiet: bool = False,
) -> None:
    """Repair names, config and index; no weight is changed.

    Prints a plan; --apply writes a complete new folder, and FOLDER stays as it is. Changes only
    what the files determine. Exit codes: 0 clean, before or after the fix, 1 findings remain, 2
    usage, 3 it cannot be done.
    """
    with guarded():
        if (to or link) and not apply:
            raise UsageError(f"{'--to' if to else '--link'} needs --apply")
        if target is not None:
            require_known_class(target)
        asked, tell = engines_asked(engines), talk(quiet=quiet)
        try:
            folder_plan = plan_for_folder(folder, target, allow or (), tell, asked)
        except SourceError as error:
            fail(UNAUDITED, f"{quoted(folder)}: {error.reason}: {error}")
        except OSError as error:
            fail(UNAUDITED, f"{quoted(folder)} cannot be read: {error.strerror or error}")
        plan = folder_plan.plan
        if form == "terminal" and not quiet:
            put(fix_plan.render(plan))
        place = _written(folder_plan, to, link=link, tell=tell) if plan.changes and apply else None
        if plan.changes and not apply:
            say("dry run: nothing was written; --apply writes it")
        if form == "json" and not quiet:
            put(json_text(fix_plan.plan_as_json(plan, place), indent=2) + "\n")
    if plan.changes and not apply:
        raise typer.Exit(FINDINGS)
    raise typer.Exit(exit_code(plan.after, FailOn.WARNING))


def _written(
    folder_plan: FolderPlan, to: Path | None, *, link: bool, tell: Callable[[str], None]
) -> Path:
    """Write the fixed folder, say so, and name what is not copied."""
    place = fix_folder(folder_plan, to, link=link, say=tell)
    say(f"wrote {quoted(str(place))}; {quoted(str(folder_plan.folder))} is as it was")
    for line in skipped_lines(folder_plan.skipped):
        tell(f"not copied: {line}")
    return place
