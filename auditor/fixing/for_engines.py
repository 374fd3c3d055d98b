"""Config keys that a serving engine reads and transformers does not, added to a plan (`--for`).

The values come from the config itself or are its class's defaults, so transformers reads the same
model afterwards. Names of tensors are never changed for an engine.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from auditor.audit.engine_verdicts import with_engines
from auditor.audit.model import examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.change import Change
from auditor.checkpoint.json_edits import ABSENT, Edit
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import ManifestEntry
from auditor.findings import Severity
from auditor.fixing.plan import Plan, PlannedCause, text_change
from auditor.report import Diagnosis, EngineVerdict, Report, Unaudited

CAUSE = "engine-keys"
_INSTEAD = "serve it with another engine, or convert it"


def with_engine_keys(
    plan: Plan, snapshot: Snapshot, options: Options, entry: ManifestEntry | None = None
) -> Plan:
    """Return the plan with the config keys that the requested engines need and the config lacks.

    `snapshot` is the checkpoint before the plan. Refusals that no key removes are left.
    """
    verdicts = with_engines(plan.after, plan.planned, options).engines
    needed = {key: value for one in verdicts for key, value in one.additions.items()}
    config = plan.planned.config
    if config is None or not needed:
        return replace(plan, left=(*plan.left, *_refusals(verdicts)))
    edits = (Edit(tuple(key.split(".")), ABSENT, value) for key, value in needed.items())
    change = Change(edits=tuple(edits))
    planned = change.with_texts(plan.planned)
    after = examine_undiagnosed(planned, options, entry)
    if not _reads_the_same(plan.after, after):
        why = "transformers would read another model"
        keys = ", ".join(needed)
        left = _left(CAUSE, f"{keys} would help", why)
        return replace(plan, left=(*plan.left, left, *_refusals(verdicts)))
    then = with_engines(after, planned, options).engines
    readers = (one for one in verdicts if one.additions)
    diagnosis = Diagnosis(
        cause=CAUSE,
        severity=Severity.WARNING,
        summary="; ".join(
            f"{one.title} reads {', '.join(one.additions)} in config.json" for one in readers
        ),
        fix="add the keys, which leave what transformers reads as it is",
        change=change,
    )
    others = (one for one in plan.changes if one.file != config.name)
    of_config = text_change(snapshot.config, planned.config or config)
    return replace(
        plan,
        planned=planned,
        causes=(*plan.causes, PlannedCause(diagnosis=diagnosis, change=change)),
        changes=tuple(sorted((*others, of_config), key=lambda one: one.file)),
        left=(*plan.left, *_refusals(then)),
    )


def _left(cause: str, summary: str, why: str) -> PlannedCause:
    diagnosis = Diagnosis(cause=cause, severity=Severity.WARNING, summary=summary, fix=_INSTEAD)
    return PlannedCause(diagnosis=diagnosis, why=why)


def _refusals(verdicts: Sequence[EngineVerdict]) -> Iterator[PlannedCause]:
    why = "no key of the config changes that, and names stay as transformers reads them"
    for one in verdicts:
        if one.loads is False and not one.additions:
            summary = f"{one.title}: {'; '.join(one.reasons)}"
            yield _left("engine-refuses", summary, why)


def _reads_the_same(before: Report | Unaudited, after: Report | Unaudited) -> bool:
    """Whether an audit expects the same tensors and finds the same, with and without the keys."""
    if not (isinstance(before, Report) and isinstance(after, Report)):
        return False
    if before.expected is None or after.expected is None:
        return False
    same = before.expected.parameters == after.expected.parameters
    return same and before.findings == after.findings
