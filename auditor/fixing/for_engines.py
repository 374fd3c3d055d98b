"""Config keys that a serving engine reads and transformers does not, added to a plan (`--for`).

The values come from the config itself or are its class's defaults, so transformers reads the same
model afterwards. Names of tensors are never changed for an engine.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from auditor.audit.engine_verdicts import with_engines
from auditor.audit.model import examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import ManifestEntry
from auditor.diagnosis.case import Undoing
from auditor.diagnosis.json_edits import ABSENT, Edit, edited_json, json_edits
from auditor.fixing.new_files import json_values
from auditor.fixing.plan import FileChange, Left, Mended, Plan
from auditor.report import EngineVerdict, Report, Unaudited

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
        return replace(plan, left=(*plan.left, *_left(verdicts)))
    edits = tuple(Edit((key,), ABSENT, value) for key, value in needed.items())
    content = edited_json(config.content, edits)
    planned = replace(plan.planned, config=replace(config, content=content))
    after = examine_undiagnosed(planned, options, entry)
    if not _reads_the_same(plan.after, after):
        why = "transformers would read another model"
        keys = ", ".join(needed)
        left = Left(cause=CAUSE, summary=f"{keys} would help", why=why, instead=_INSTEAD)
        return replace(plan, left=(*plan.left, left, *_left(verdicts)))
    then = with_engines(after, planned, options).engines
    undoing = Undoing(
        cause=CAUSE,
        snapshot=planned,
        summary="; ".join(
            f"{one.engine} {one.version} reads {', '.join(one.additions)} in config.json"
            for one in verdicts
            if one.additions
        ),
        fix="add the keys, which transformers does not read there",
    )
    others = (change for change in plan.changes if change.file != config.name)
    old = snapshot.config
    change = FileChange(
        file=config.name,
        before=None if old is None else old.content,
        after=content,
        size=len(old.content) if old else 0,
        edits=tuple(json_edits(json_values(old), json_values(planned.config))),
    )
    return replace(
        plan,
        planned=planned,
        causes=(*plan.causes, Mended(undoing=undoing, keys=frozenset(needed))),
        changes=tuple(sorted((*others, change), key=lambda one: one.file)),
        left=(*plan.left, *_left(then)),
    )


def _left(verdicts: Sequence[EngineVerdict]) -> Iterator[Left]:
    for verdict in verdicts:
        if verdict.loads is False and not verdict.additions:
            yield Left(
                cause="engine-refuses",
                summary=f"{verdict.engine} {verdict.version}: {'; '.join(verdict.reasons)}",
                why="no key of the config changes that, and names stay as transformers reads them",
                instead=_INSTEAD,
            )


def _reads_the_same(before: Report | Unaudited, after: Report | Unaudited) -> bool:
    """Whether an audit expects the same tensors and finds the same, with and without the keys."""
    if not (isinstance(before, Report) and isinstance(after, Report)):
        return False
    if before.expected is None or after.expected is None:
        return False
    same = before.expected.parameters == after.expected.parameters
    return same and before.findings == after.findings
