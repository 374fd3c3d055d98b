"""The plan of a fix, for people and as JSON: the changes of each file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from auditor.diagnosis.permissions import Need
from auditor.fixing.plan import FileChange, Plan, PlannedCause
from auditor.formats.text import counted, plain_line
from auditor.messages import described, named, quoted
from auditor.report import ABSENT, Edit, Unaudited

_EXAMPLES = 3  # names shown of one file
_SHOWN = 8  # values shown of one file, and remaining findings
_DETAILED = 2  # weight files whose names are shown
_FILES = 12
_MAP = "weight_map"


def render(plan: Plan) -> str:
    """Return the plan as text, with a few lines for each cause and each file."""
    return "".join(map(plain_line, _lines(plan)))


def effect_of(plan: Plan, others: int = 0) -> str:
    """Return the effect of a plan in a few words: `renames 113 tensors; then it audits clean`.

    `others` is the number of alarms that a plan does not look for, such as those about values.
    """
    renames = [change.renames for change in plan.changes if change.renames]
    values = sum(len(change.edits) for change in plan.changes if change.before is not None)
    parts = []
    if renames:
        parts.append(f"renames {counted(sum(map(len, renames)), 'tensor')}")
    if values and not renames:
        parts.append(f"sets {counted(values, 'value')} of {named(plan.changes[0].file)}")
    new = sum(change.before is None for change in plan.changes)
    if new:
        parts.append(f"adds {counted(new, 'file')}")
    alarms = len(plan.after.alarms) + others
    left = counted(alarms, "finding") + (" remain" if alarms > 1 else " remains")
    is_clean = plan.after.verdict == "clean" and not alarms
    return f"{', '.join(parts)}; then {'it audits clean' if is_clean else left}"


def _lines(plan: Plan) -> Iterator[str]:
    model = plan.before.requested
    yield f"{model} · {plan.before.target}" if plan.before.target else model
    yield ""
    for cause in plan.causes:
        yield f"{cause.diagnosis.cause}: {cause.diagnosis.summary}"
        yield f"  to do: {cause.diagnosis.fix}"
        yield from _needs(cause.needs, "allowed by")
    yield from _files(plan.changes)
    for left in plan.left:
        yield from _left(left)
    if plan.causes or plan.changes or plan.left:
        yield ""
    yield from _verdict(plan)


def _left(left: PlannedCause) -> Iterator[str]:
    kind = "needs --allow" if left.needs else "cannot be fixed here"
    yield f"{kind}: {left.diagnosis.cause}: {left.diagnosis.summary}"
    if left.needs:
        yield from _needs(left.needs, "allow it with")
        return
    if left.why not in left.diagnosis.fix:
        yield f"  why: {left.why}"
    yield f"  to do: {left.diagnosis.fix}"


def _needs(needs: tuple[Need, ...], option: str) -> Iterator[str]:
    for need in needs:
        yield f"  {option} --allow {need.allow}: {need.consequence}"


def _files(changes: tuple[FileChange, ...]) -> Iterator[str]:
    """Yield a line for each of the first files, and the new names and values of the first few."""
    weights = [change.file for change in changes if change.renames][_DETAILED:]
    for change in changes[:_FILES]:
        yield f"  {named(change.file)}: {_what(change)}"
        if change.file not in weights:
            yield from (f"      {line}" for line in _details(change))
    if len(changes) > _FILES:
        yield f"  and {len(changes) - _FILES:,} more files"


def _verdict(plan: Plan) -> Iterator[str]:
    then = "then " if plan.changes else ""
    if isinstance(plan.after, Unaudited):
        yield f"{then}it cannot be audited: {plan.after.reason}: {plan.after.detail}"
        return
    alarms = plan.after.alarms
    if plan.after.verdict == "clean":
        yield f"{then}it audits clean" if plan.changes else "nothing to fix: it audits clean"
        return
    count = counted(len(alarms), "finding")
    if plan.changes:
        yield f"then {count} would remain:"
    elif any(left.needs for left in plan.left):
        yield f"{count} would remain unless you allow the changes:"
    else:
        yield f"{count} cannot be fixed:"
    for finding in alarms[:_SHOWN]:
        yield f"  {finding.kind}: {finding.reason}"
    if len(alarms) > _SHOWN:
        yield f"  and {len(alarms) - _SHOWN:,} more"


def _what(change: FileChange) -> str:
    if change.renames:
        names = counted(len(change.renames), "name")
        return f"{names} in the header; {change.size:,} bytes, whose data is unchanged"
    if change.before is None:
        return f"a new file, {len(change.after):,} bytes"
    return counted(len(change.edits), "value")


def _details(change: FileChange) -> Iterator[str]:
    for before, after in change.renames[:_EXAMPLES]:
        yield f"{quoted(before)} -> {quoted(after)}"
    if len(change.renames) > _EXAMPLES:
        yield f"and {len(change.renames) - _EXAMPLES:,} more"
    values = [edit for edit in change.edits if edit.path[0] != _MAP]
    for edit in values[:_SHOWN]:
        path = ".".join(map(named, edit.path))
        yield f"{path}: {_value(edit.before)} -> {_value(edit.after)}"
    if len(values) > _SHOWN:
        yield f"and {len(values) - _SHOWN:,} more values"
    placed = [edit for edit in change.edits if edit.path[0] == _MAP]
    if placed:
        yield f"{_MAP}: {', '.join(_counts(placed))}"


def _counts(placed: list[Edit]) -> Iterator[str]:
    added = sum(edit.before is ABSENT for edit in placed)
    removed = sum(edit.after is ABSENT for edit in placed)
    for count, what in ((added, "named"), (removed, "no longer named")):
        if count:
            yield f"{count:,} {what}"
    if moved := len(placed) - added - removed:
        yield f"{moved:,} in another file"


def _value(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    if isinstance(value, list | dict):
        return quoted(str(value))
    return described(value).removeprefix("the string ")


def plan_as_json(plan: Plan, written: Path | None, command: str | None) -> dict[str, Any]:
    """Return the plan as a JSON object; `written` is the fixed folder, None if not applied.

    `command` writes the plan, or what it would be if all changes were allowed.
    """
    after = plan.after
    return {
        "model": plan.before.requested,
        "applied": written is not None,
        "written": None if written is None else str(written),
        "command": command,
        "causes": [
            {
                "cause": cause.diagnosis.cause,
                "summary": cause.diagnosis.summary,
                "fix": cause.diagnosis.fix,
                **_needs_as_json(cause.needs),
            }
            for cause in plan.causes
        ],
        "left": [
            {
                "cause": cause.diagnosis.cause,
                "summary": cause.diagnosis.summary,
                "why": cause.why,
                "fix": cause.diagnosis.fix,
                **_needs_as_json(cause.needs),
            }
            for cause in plan.left
        ],
        "files": [_file_as_json(change) for change in plan.changes],
        "before": {"verdict": plan.before.verdict, "findings": len(plan.before.alarms)},
        "after": {"verdict": after.verdict, "findings": len(after.alarms)},
    }


def _needs_as_json(needs: tuple[Need, ...]) -> dict[str, Any]:
    """Return whether the fix of a cause needs options, which options, and their consequences."""
    return {
        "tier": "needs-your-word" if needs else "safe",
        "allow": [need.allow for need in needs],
        "consequences": [need.consequence for need in needs],
    }


def _json_value(value: Any) -> Any:
    """Return a value that strict JSON can encode: `NaN` and `Infinity` become strings."""
    return json.loads(json.dumps(value), parse_constant=str)


def _file_as_json(change: FileChange) -> dict[str, Any]:
    return {
        "file": change.file,
        "is_new": change.before is None,
        "renames": [list(pair) for pair in change.renames],
        "values": [
            {
                "path": list(edit.path),
                **({} if edit.before is ABSENT else {"before": _json_value(edit.before)}),
                **({} if edit.after is ABSENT else {"after": _json_value(edit.after)}),
            }
            for edit in change.edits
        ],
    }
