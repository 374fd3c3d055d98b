"""The `audit fix` command."""

from pathlib import Path

from auditor.checkpoint.skipped import skipped_lines
from auditor.cli.console import (
    FINDINGS,
    UNAUDITED,
    engines_asked,
    exit_code,
    fail,
    put,
    say,
    talk,
)
from auditor.cli.remedy import plan_command
from auditor.diagnosis.permissions import Allow
from auditor.errors import SourceError, UsageError
from auditor.fixing.of_folder import fix_folder, plan_for_folder
from auditor.formats import fix_plan
from auditor.formats.json_values import json_text
from auditor.messages import quoted
from auditor.options import TextFormat


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
) -> int:
    """Repair names, config and index; no weight is changed.

    Prints a plan; --apply writes a complete new folder, and FOLDER stays as it is. Changes only
    what the files determine. Exit codes: 0 clean, before or after the fix, 1 findings remain, 2
    usage, 3 it cannot be done.
    """
    if (to or link) and not apply:
        raise UsageError(f"{'--to' if to else '--link'} needs --apply")
    asked, tell = engines_asked(engines), talk(quiet=quiet)
    try:
        folder_plan = plan_for_folder(folder, target, allow or (), tell, asked)
    except SourceError as error:
        fail(UNAUDITED, f"{quoted(folder)}: {error.reason}: {error}")
    except OSError as error:
        fail(UNAUDITED, f"{quoted(folder)} cannot be read: {error.strerror or error}")
    plan = folder_plan.plan
    command = plan_command(plan, folder, target, engines)
    if form == "terminal" and not quiet:
        put(fix_plan.render(plan))
    place = None
    if plan.changes and apply:
        place = fix_folder(folder_plan, to, link=link, say=tell)
        say(f"wrote {quoted(str(place))}; {quoted(str(folder_plan.folder))} is unchanged")
        for line in skipped_lines(folder_plan.skipped):
            tell(f"not copied: {line}")
    elif plan.changes:
        say(f"dry run: nothing was written; to write it: {command}")
    elif command:
        say(f"nothing was written; to allow the changes: {command}")
    if form == "json" and not quiet:
        put(json_text(fix_plan.plan_as_json(plan, place, command), indent=2) + "\n")
    return FINDINGS if plan.changes and not apply else exit_code(plan.after)
