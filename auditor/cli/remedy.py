"""The `audit fix` command that the report on a folder suggests at its top."""

import shlex
from contextlib import suppress
from pathlib import Path

from auditor.checkpoint.snapshot import Source
from auditor.cli.console import keep_quiet
from auditor.errors import FixError, SourceError, UsageError
from auditor.findings import BadDigest, CopyDiffers, EngineRefuses, Finding, OfValues, WrongTotal
from auditor.report import Report, Unaudited

# Limits for planning, which audits the folder several times. At the limits it takes a second.
_MOST_TENSORS, _MOST_LETTERS = 20_000, 500_000
_UNSOUGHT = {BadDigest.kind, CopyDiffers.kind, EngineRefuses.kind}  # no plan looks for them


def fix_command(outcome: Report | Unaudited, target: str | None) -> tuple[str, str] | None:
    """Plan a fix as `audit fix` does; return the command and its effect, None without changes."""
    folder = outcome.requested
    if not _is_worth_a_plan(outcome) or not folder.isprintable() or not Path(folder).is_dir():
        return None
    # Imported only for a folder with a cause.
    from auditor.fixing.of_folder import plan_for_folder  # noqa: PLC0415
    from auditor.formats.fix_plan import effect_of  # noqa: PLC0415

    with suppress(FixError, SourceError, UsageError, OSError):
        planned = plan_for_folder(folder, target, (), keep_quiet)
        before = planned.plan.before
        # With --config or --variant the plan is about another config or other weights.
        is_same = _subject(outcome)[0] == _subject(before)[0]
        is_same &= _subject(outcome)[1] <= _subject(before)[1]
        if planned.plan.changes and is_same:
            options = f" --as {shlex.quote(target)}" if target else ""
            found = {(one.kind, one.names) for one in before.alarms}
            unsought = [one for one in outcome.alarms if _is_unsought(one)]
            others = [one for one in unsought if (one.kind, one.names) not in found]
            effect = effect_of(planned.plan, len(others))
            return f"audit fix {shlex.quote(folder)}{options} --apply", effect
    return None


def _is_unsought(finding: Finding) -> bool:
    return finding.kind in _UNSOUGHT or isinstance(finding, OfValues)


def _subject(outcome: Report | Unaudited) -> tuple[object, set[str]]:
    """Return the class with its number of parameters, and the weight files of an audit."""
    files = outcome.observed.by_file if outcome.observed else ()
    parameters = outcome.expected and outcome.expected.parameters
    return (outcome.target, parameters), {file.name for file in files}


def _is_worth_a_plan(outcome: Report | Unaudited) -> bool:
    """Whether a folder has a single, small model, and a fault that `audit fix` may mend."""
    if outcome.source is not Source.FOLDER or outcome.parts or outcome.observed is None:
        return False
    letters = sum(len(name) for finding in outcome.findings for name in finding.names)
    is_small = outcome.observed.tensors <= _MOST_TENSORS and letters <= _MOST_LETTERS
    has_total = any(finding.kind == WrongTotal.kind for finding in outcome.findings)
    return is_small and (bool(outcome.diagnosis) or has_total)
