"""The `audit fix` command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from auditor.audit.expected import require_known_class
from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    FailOn,
    QuietOption,
    TargetOption,
    TextFormat,
    engines_asked,
    exit_code,
    fail,
    guarded,
    put,
    say,
    talk,
)
from auditor.diagnosis.permissions import Allow
from auditor.errors import FixError, SourceError, UsageError
from auditor.fixing.carrying_out import finish_interrupted, is_interrupted
from auditor.fixing.of_folder import FolderPlan, fix_folder, plan_for_folder
from auditor.fixing.plan import Plan
from auditor.fixing.undo import undo_fix
from auditor.formats import fix_plan
from auditor.formats.json_values import json_text
from auditor.messages import quoted


def fix(  # noqa: PLR0913 - one parameter for each option
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", show_default=False, help="A checkpoint's folder on this machine."
        ),
    ],
    *,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Carry out the plan; each old file is kept as FILE.orig."),
    ] = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Write a header over the old one, if it fits; FILE.header.orig has the old one.",
        ),
    ] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Restore the files that the last fix replaced, and remove those that it added.",
        ),
    ] = False,
    target: TargetOption = None,
    engines: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="ENGINES",
            show_default=False,
            help="Also add config keys that vllm, mlx or llama.cpp read.",
        ),
    ] = None,
    allow: Annotated[
        list[Allow] | None,
        typer.Option(
            "--allow",
            metavar="CHANGE",
            show_default=False,
            help=f"A change that needs your word: {', '.join(Allow)}.",
        ),
    ] = None,
    form: Annotated[
        TextFormat, typer.Option("--format", show_default=False, help="How to print the plan.")
    ] = TextFormat.TERMINAL,
    quiet: QuietOption = False,
) -> None:
    """Repair names, config and index; no weight is changed.

    Prints a plan; --apply carries it out, or changes nothing. Writes only what the files determine,
    and never to links or to the Hugging Face cache. Exit codes: 0 clean, before or after the fix, 1
    findings remain, 2 usage, 3 it cannot be done.
    """
    with guarded():
        if undo:
            if apply or in_place or allow or target is not None:
                raise UsageError(
                    "--undo is combined with other options, expected only --format or --quiet"
                )
            _undo(folder, form, quiet=quiet)
            raise typer.Exit(CLEAN)
        if target is not None:
            require_known_class(target)
        asked = engines_asked(engines)
        place, tell = Path(folder), talk(quiet=quiet)
        _finish_earlier(place, apply=apply)
        try:
            folder_plan = plan_for_folder(folder, target, allow or (), tell, asked)
        except SourceError as error:
            fail(UNAUDITED, f"{quoted(folder)}: {error.reason}: {error}")
        except OSError as error:
            fail(UNAUDITED, f"{quoted(folder)} cannot be read: {error.strerror or error}")
        plan = folder_plan.plan
        if form is TextFormat.TERMINAL and not quiet:
            put(fix_plan.render(plan))
        todo = _is_to_do(folder_plan, apply=apply)
        old_files = fix_folder(folder_plan, in_place=in_place, say=tell) if todo else None
        if form is TextFormat.JSON and not quiet:
            put(json_text(fix_plan.plan_as_json(plan, old_files), indent=2) + "\n")
        elif old_files is not None:
            tell(f"done; the old files are kept: {', '.join(map(quoted, old_files)) or 'none'}")
    raise typer.Exit(_code(plan, folder_plan.refused, applied=old_files is not None))


def _finish_earlier(folder: Path, *, apply: bool) -> None:
    """Finish an interrupted fix or undo, which left some files new and others old.

    Without `apply`, exit with a message if there is one.
    """
    if not apply:
        if is_interrupted(folder):
            fail(
                FINDINGS,
                f"an audit fix of {quoted(str(folder))} was interrupted; run it again with "
                f"--apply or --undo",
            )
        return
    with _writing(folder):
        if finish_interrupted(folder):
            say("an interrupted audit fix is finished now")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn an OSError in the block into a FixError."""
    try:
        yield
    except OSError as error:
        raise FixError(
            f"cannot write in {quoted(str(folder))}: {error.strerror or error}"
        ) from None


def _undo(requested: str, form: TextFormat, *, quiet: bool) -> None:
    """Undo the last fix, and print the restored files."""
    folder = Path(requested)
    if not folder.is_dir():
        raise UsageError(f"{quoted(requested)} is not a folder on this machine")
    with _writing(folder):
        undone = undo_fix(folder)
    if form is TextFormat.JSON and not quiet:
        put(json_text(to_builtins(undone), indent=2) + "\n")
    for what, names in (("restored", undone.restored), ("removed", undone.removed)):
        if names and not quiet:
            say(f"{what}: {', '.join(map(quoted, names))}")


def _is_to_do(folder_plan: FolderPlan, *, apply: bool) -> bool:
    if folder_plan.plan.changes and not apply:
        say(f"dry run: nothing changed; {folder_plan.refused or '--apply writes it'}")
    return bool(folder_plan.plan.changes) and apply


def _code(plan: Plan, refused: str | None, *, applied: bool) -> int:
    if plan.changes and not applied:
        return UNAUDITED if refused else FINDINGS
    return (
        exit_code(plan.after, FailOn.WARNING)
        if plan.changes
        else exit_code(plan.before, FailOn.WARNING) or CLEAN
    )
