"""The plan of a fix: the files that change, before and after, and the outcome after it.

A plan is made in memory. Each round takes steps and audits the checkpoint as it would be written. A
step is the part of a cause's change that can be written. A plan is carried out completely or not at
all. It has three conditions: the files
determine each value, the user allows each change that needs permission, and afterwards no tensor is
missing, unexpected or of another shape.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.audit.implied import case_of
from auditor.audit.model import examine_model, examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.change import UNCHANGED, Change, composed
from auditor.checkpoint.json_edits import Edit, json_edits
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.containers.manifest import ManifestEntry
from auditor.containers.safetensors import LENGTH_BYTES, Header
from auditor.diagnosis.case import Case, alarm_keys
from auditor.diagnosis.permissions import (
    Allow,
    Need,
    Unwritten,
    needs_of_edits,
    needs_of_renames,
)
from auditor.diagnosis.remedies import sizes_unless_edited
from auditor.errors import CheckpointError
from auditor.findings import (
    BadIndex,
    ConfigContradiction,
    Finding,
    OfCopies,
    WrongDtype,
    WrongTotal,
    is_of_repository,
)
from auditor.fixing.new_files import json_values, rebuilt_index
from auditor.fixing.steps import (
    Unfixable,
    end_token_causes,
    generation_file,
    with_change,
    written_part,
)
from auditor.messages import listed, named
from auditor.report import Diagnosis, Report, Unaudited

_ROUNDS = 3  # a diagnosis names at most three causes; the remaining findings may have others


class FileChange(Struct, frozen=True, kw_only=True):
    """A file before and after a fix."""

    file: str
    before: bytes | None  # the content, or a weight file's header; None: no such file
    after: bytes
    size: int  # of the complete file before; 0: no such file
    renames: tuple[tuple[str, str], ...] = ()  # tensor names in a header, before and after, sorted
    edits: tuple[Edit, ...] = ()  # the edits of a JSON file


class PlannedCause(Struct, frozen=True, kw_only=True):
    """A cause of findings that the plan removes, or why it does not."""

    diagnosis: Diagnosis
    change: Change = Change()  # what is written
    needs: tuple[Need, ...] = ()  # options without which it is not removed
    why: str = ""  # the reason if it is not removed


class Plan(Struct, frozen=True, kw_only=True):
    """The causes that a fix removes, the causes that remain, and the files that change."""

    before: Report | Unaudited
    after: Report | Unaudited  # of the checkpoint as it will be written
    planned: Snapshot  # likewise
    causes: tuple[PlannedCause, ...]
    left: tuple[PlannedCause, ...]
    changes: tuple[FileChange, ...]  # sorted by file


class _Reached(Struct, frozen=True, kw_only=True):
    """The checkpoint after all steps, before the conditions of a plan are checked."""

    state: Snapshot
    outcome: Report | Unaudited
    renames: Mapping[str, str]
    steps: tuple[PlannedCause, ...]
    left: tuple[PlannedCause, ...]  # causes without a step


def plan_fix(
    snapshot: Snapshot,
    options: Options,
    entry: ManifestEntry | None = None,
    *,
    allowed: Collection[Allow] = (),
) -> Plan:
    """Plan the changes that remove findings from the audit of a folder's only model.

    `entry` is the model's entry in a manifest; `allowed` are the changes that the user allows.
    """
    audits = _Audits(options, entry)
    before, causes = audits.diagnosed(snapshot)
    reached = _reached(snapshot, before, causes, audits, _ROUNDS)
    plan = _plan(snapshot, before, reached, audits, allowed)
    if plan.changes or all(step.diagnosis in causes for step in reached.steps):
        return plan
    # What a later round adds may be what must not be written; the audit names the first alone.
    reached = _reached(snapshot, before, causes, audits, 1)
    return _plan(snapshot, before, reached, audits, allowed)


def _plan(
    snapshot: Snapshot,
    before: Report | Unaudited,
    reached: _Reached,
    audits: "_Audits",
    allowed: Collection[Allow],
) -> Plan:
    """Return the plan of the reached steps, or the reasons why none of them is written."""
    nothing = Plan(
        before=before, after=before, planned=snapshot, causes=(), left=reached.left, changes=()
    )
    if reached.state is snapshot:
        return nothing
    try:
        _require_tensors(snapshot)
        steps = tuple(_with_needs(snapshot, reached, audits))
        _require_sound(
            reached.outcome, {one.path[-1] for step in steps for one in step.change.edits}
        )
    except Unwritten as why:
        left = (replace(step, why=str(why)) for step in reached.steps)
        return replace(nothing, left=(*left, *reached.left))
    if {need.allow for step in steps for need in step.needs}.difference(allowed):
        left = (replace(step, why=_TOGETHER) for step in steps)
        return replace(nothing, left=(*left, *reached.left))
    changes = _changes(snapshot, reached.state, reached.renames)
    return Plan(
        before=before,
        after=reached.outcome,
        planned=reached.state,
        causes=steps,
        left=reached.left,
        changes=tuple(sorted(changes, key=lambda one: one.file)),
    )


_TOGETHER = "it is not done before all of the changes are allowed"
_NO_BETTER = "an audit would find as much afterwards, or something else"


# --- taking all steps in memory ------------------------------------------------------------------


class _Audits(NamedTuple):
    """The options and the manifest entry with which one model is audited, also after changes."""

    options: Options
    entry: ManifestEntry | None

    def diagnosed(self, state: Snapshot) -> tuple[Report | Unaudited, list[Diagnosis]]:
        """Return the outcome, and the causes with a change that removes their findings."""
        outcome = examine_model(state, self.options, self.entry)
        causes = (one for one in outcome.diagnosis if one.change is not None)
        return outcome, [*causes, *end_token_causes(state, outcome)]

    def undiagnosed(self, state: Snapshot) -> Report | Unaudited:
        return examine_undiagnosed(state, self.options, self.entry)

    def case(self, state: Snapshot) -> Case:
        return case_of(state, self.options, self.entry)


def _reached(
    state: Snapshot,
    now: Report | Unaudited,
    causes: list[Diagnosis],
    audits: _Audits,
    rounds: int,
) -> _Reached:
    """Take all steps that can be written, in rounds: causes may appear when others are removed."""
    renames, steps, left = UNCHANGED, list[PlannedCause](), list[PlannedCause]()
    for _ in range(rounds):
        more, left, after = _steps(state, causes)
        together = UNCHANGED
        for step in more:
            together = composed(together, step.change.renames)
        after, then = _with_index(after, audits)
        if not _better(now, then, together):
            left = [*(replace(step, why=_NO_BETTER) for step in more), *left]
            break
        state, now, renames = after, then, composed(renames, together)
        steps += more
        if not now.alarms:
            left = []
            break
        now, causes = audits.diagnosed(state)
    return _Reached(state=state, outcome=now, renames=renames, steps=tuple(steps), left=tuple(left))


def _steps(
    state: Snapshot, causes: list[Diagnosis]
) -> tuple[list[PlannedCause], list[PlannedCause], Snapshot]:
    """Return the steps that can be written, the causes without a step, and the new checkpoint."""
    steps, left = list[PlannedCause](), list[PlannedCause]()
    base, reached = state, state
    for cause in causes:
        change = cause.change or Change()
        try:
            part = written_part(base, cause, change)
            reached = with_change(reached, part)
            steps.append(PlannedCause(diagnosis=cause, change=part))
        except (Unfixable, Unwritten) as why:
            left.append(PlannedCause(diagnosis=cause, why=str(why)))
        base = change.applied_to(base)
    return steps, left, reached


def _with_index(state: Snapshot, audits: _Audits) -> tuple[Snapshot, Report | Unaudited]:
    """Rebuild the index from the headers if that removes alarms; return checkpoint and outcome."""
    report = audits.undiagnosed(state)
    if not any(one.kind in {BadIndex.kind, WrongTotal.kind} for one in report.alarms):
        return state, report
    index = rebuilt_index(state, report.observed)
    if index is None or index == state.index:
        return state, report
    rebuilt = replace(state, index=index, unopened=())
    after = audits.undiagnosed(rebuilt)
    is_better = _better(report, after, UNCHANGED)
    return (rebuilt, after) if is_better else (state, report)


def _better(now: Report | Unaudited, then: Report | Unaudited, renames: Mapping[str, str]) -> bool:
    """Whether `then` has fewer errors and warnings than `now`: some are gone, and none is new.

    Second copies of tied tensors do not count: they are recognized by their right names.
    """
    if isinstance(then, Unaudited) and isinstance(now, Report):
        return False
    before, after = (
        {key for one in outcome.alarms if not _is_tied_copy(one) for key in alarm_keys(one, new)}
        for outcome, new in ((now, renames), (then, UNCHANGED))
    )
    return after < before


def _is_tied_copy(finding: Finding) -> bool:
    """Whether the copies have names of their own; else two files store one name."""
    return isinstance(finding, OfCopies) and not set(finding.names) & set(finding.of)


# --- whether steps may be taken ------------------------------------------------------------------


def _with_needs(snapshot: Snapshot, reached: _Reached, audits: _Audits) -> Iterator[PlannedCause]:
    """Yield each step with the options it needs; raise Unwritten if a value must not change."""
    config = json_values(snapshot.config)
    edits = tuple(json_edits(config, json_values(reached.state.config)))
    sizes = sizes_unless_edited(audits.case(reached.state), edits, config)
    needed = partial(needs_of_edits, determined=sizes, config=config)
    list(needed(edits))  # of all steps together, because an edit may be safe only alone
    for step in reached.steps:
        renamed = needs_of_renames(step.change.renames, is_reading=step.diagnosis.is_reading)
        needs = (*renamed, *needed(step.change.edits))
        yield replace(step, needs=needs)


def _require_tensors(snapshot: Snapshot) -> None:
    """Raise Unwritten if a weight file has no tensors: it is unknown which tensors it lacks."""
    for head in snapshot.headers:
        if not isinstance(head.parsed, CheckpointError) and not head.parsed.tensors:
            raise Unwritten(f"{named(head.name)} has no tensors: its weights were not saved")


def _require_sound(after: Report | Unaudited, keys: Collection[str]) -> None:
    """Raise Unwritten if tensors would be missing, unexpected or of another shape after a fix.

    Raise it also if the fixed checkpoint cannot be audited, or if one of the changed `keys`
    contradicts the rest of the config.
    """
    if isinstance(after, Unaudited):
        raise Unwritten("the checkpoint could not be audited afterwards")
    alarms = [one for one in after.alarms if not _may_stay(one, keys)]
    if alarms:
        kinds = listed(list(dict.fromkeys(one.kind for one in alarms)))
        raise Unwritten(f"it would not be the whole model afterwards: {kinds} would be left")


def _may_stay(finding: Finding, keys: Collection[str] = ()) -> bool:
    """Whether a finding may remain after a fix; `keys` are the config keys that the fix changes."""
    if ConfigContradiction.describes(finding):
        return not any(key.rpartition(".")[2] in keys for _, key, _ in finding.says)
    is_harmless = WrongDtype.describes(finding) or is_of_repository(finding)
    return is_harmless or _is_tied_copy(finding)


# --- files -------------------------------------------------------------------------------------


def _changes(before: Snapshot, after: Snapshot, renames: Mapping[str, str]) -> Iterator[FileChange]:
    for header, new_header in zip(before.headers, after.headers, strict=True):
        table = header.parsed
        if header.prefix != new_header.prefix and isinstance(table, Header):
            names = [tensor.name for tensor in table.tensors if tensor.name in renames]
            yield FileChange(
                file=header.name,
                before=header.prefix[: LENGTH_BYTES + table.header_length],
                after=new_header.prefix,
                size=header.size or 0,
                renames=tuple((name, renames[name]) for name in names),
            )
    texts = (
        (before.config, after.config),
        (before.index, after.index),
        (generation_file(before), generation_file(after)),
    )
    for old, new in texts:
        if new is not None and old != new:
            yield text_change(old, new)


def text_change(old: TextFile | None, new: TextFile) -> FileChange:
    """Return the change of a JSON file; `old` is None for a new file."""
    return FileChange(
        file=new.name,
        before=None if old is None else old.content,
        after=new.content,
        size=0 if old is None else len(old.content),
        edits=tuple(json_edits(json_values(old), json_values(new))),
    )
