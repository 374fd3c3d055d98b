"""The `audit fix` command that the report on a folder suggests at its top."""

import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Source
from auditor.cli.console import keep_quiet
from auditor.diagnosis.permissions import Need
from auditor.errors import FixError, SourceError, UsageError
from auditor.findings import BadDigest, CopyDiffers, EngineRefuses, Finding, OfValues, WrongTotal
from auditor.report import Allowed, FixCommand, Report, Unaudited

if TYPE_CHECKING:
    from auditor.fixing.plan import Plan

# Limits for planning, which audits the folder several times. At the limits it takes a second.
_MOST_TENSORS, _MOST_LETTERS = 20_000, 500_000
_UNSOUGHT = {BadDigest.kind, CopyDiffers.kind, EngineRefuses.kind}  # no plan looks for them


def with_fix_commands(outcome: Report | Unaudited, target: str | None) -> Report | Unaudited:
    """Return the outcome with the command that mends it; each model of a repository has its own."""
    if outcome.source is not Source.FOLDER:
        return outcome
    if not outcome.parts:
        return replace(outcome, fix_command=fix_command(outcome, target))
    parts = (
        replace(part, fix_command=fix_command(part, None, f"{outcome.requested}/{part.component}"))
        for part in outcome.parts
    )
    return replace(outcome, parts=tuple(parts))


def fix_command(
    outcome: Report | Unaudited, target: str | None, folder: str | None = None
) -> FixCommand | None:
    """Plan a fix as `audit fix` does; return None if it changes nothing.

    `folder` is that of a component. Changes that need permission are planned only if there is no
    fix without them.
    """
    folder = folder or outcome.requested
    if not _is_worth_a_plan(outcome) or not folder.isprintable() or not Path(folder).is_dir():
        return None
    # Imported only for a folder with a cause.
    from auditor.fixing.of_folder import plan_for_folder  # noqa: PLC0415
    from auditor.formats.fix_plan import effect_of  # noqa: PLC0415

    with suppress(FixError, SourceError, UsageError, OSError):
        plan = plan_for_folder(folder, target, (), keep_quiet).plan
        needs = needs_of(plan)
        if not plan.changes and needs:
            allowed = [need.allow for need in needs]
            plan = plan_for_folder(folder, target, allowed, keep_quiet).plan
        before = plan.before
        # With --config or --variant the plan is about another config or other weights.
        is_same = _subject(outcome)[0] == _subject(before)[0]
        is_same &= _subject(outcome)[1] <= _subject(before)[1]
        if plan.changes and is_same:
            found = {(one.kind, one.names) for one in before.alarms}
            unsought = [one for one in outcome.alarms if _is_unsought(one)]
            others = [one for one in unsought if (one.kind, one.names) not in found]
            return FixCommand(
                command=command_line(folder, target, needs),
                effect=effect_of(plan, len(others)),
                allows=tuple(Allowed(need.allow, need.consequence) for need in needs),
            )
    return None


def needs_of(plan: "Plan") -> list[Need]:
    """Return the changes that need permission, one of each option."""
    return [*{need.allow: need for left in plan.left for need in left.needs}.values()]


def plan_command(plan: "Plan", folder: str, target: str | None, engines: str | None) -> str | None:
    """Return the command that writes a plan and what it leaves for want of permission, if any."""
    needs = [*(need for cause in plan.causes for need in cause.needs), *needs_of(plan)]
    return command_line(folder, target, needs, engines) if plan.changes or needs else None


def command_line(
    folder: str, target: str | None, needs: Iterable[Need], engines: str | None = None
) -> str:
    """Return the command that writes a plan: `audit fix FOLDER --allow labels --apply`."""
    options = f" --as {shlex.quote(target)}" if target else ""
    options += f" --for {shlex.quote(engines)}" if engines else ""
    options += "".join(f" --allow {word}" for word in dict.fromkeys(one.allow for one in needs))
    return f"audit fix {shlex.quote(folder)}{options} --apply"


def _is_unsought(finding: Finding) -> bool:
    return finding.kind in _UNSOUGHT or isinstance(finding, OfValues)


def _subject(outcome: Report | Unaudited) -> tuple[object, set[str]]:
    """Return the class with its number of parameters, and the weight files of an audit."""
    files = outcome.observed.by_file if outcome.observed else ()
    parameters = outcome.expected and outcome.expected.parameters
    folder = f"{outcome.component}/" if outcome.component else ""
    return (outcome.target, parameters), {file.name.removeprefix(folder) for file in files}


def _is_worth_a_plan(outcome: Report | Unaudited) -> bool:
    """Whether a folder has a single, small model, and a fault that `audit fix` may mend."""
    if outcome.source is not Source.FOLDER or outcome.parts or outcome.observed is None:
        return False
    letters = sum(len(name) for finding in outcome.findings for name in finding.names)
    is_small = outcome.observed.tensors <= _MOST_TENSORS and letters <= _MOST_LETTERS
    has_total = any(finding.kind == WrongTotal.kind for finding in outcome.findings)
    return is_small and (bool(outcome.diagnosis) or has_total)
