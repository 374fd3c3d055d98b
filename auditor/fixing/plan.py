"""The plan of a fix: which files change, from what to what, and what an audit says afterwards.

It is made in memory. Each round audits the checkpoint as it would be written, so what is written is
what was audited; where that does not close findings, or opens any, nothing is planned.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from auditor.audit.model import examine_model, examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.containers.manifest import ManifestEntry
from auditor.containers.safetensors import LENGTH_BYTES, Header
from auditor.diagnosis.case import UNCHANGED, Undoing, alarm_keys, composed
from auditor.fixing.json_edits import Edit, json_edits
from auditor.fixing.new_files import json_values, rebuilt_index
from auditor.fixing.steps import FixStep, Unfixable, step_of, taken
from auditor.reconciler.findings import BadIndex, Finding, Severity, WrongTotal
from auditor.report import Report, Unaudited

_ROUNDS = 3  # a diagnosis names two causes at most; what is left may have another


class FileChange(Struct, frozen=True, kw_only=True):
    """What becomes of one file."""

    file: str
    before: bytes | None  # its content, of weights the header alone; None: there is no such file
    after: bytes
    size: int  # of the whole file, before; 0 where there is none
    renames: tuple[tuple[str, str], ...] = ()  # names in a header, before and after, sorted
    edits: tuple[Edit, ...] = ()  # of a JSON file; weights, whose data stays, have none


class Left(Struct, frozen=True, kw_only=True):
    """A cause that headers, index and config cannot mend."""

    cause: str
    summary: str
    why: str
    instead: str


class Plan(Struct, frozen=True, kw_only=True):
    """What is wrong, what will be done about it, and what will be left."""

    before: Report | Unaudited
    after: Report | Unaudited  # of the checkpoint as it will be written
    planned: Snapshot  # likewise
    causes: tuple[Undoing, ...]  # that are mended
    left: tuple[Left, ...]  # that are not
    changes: tuple[FileChange, ...]  # sorted by file


def plan_fix(snapshot: Snapshot, options: Options, entry: ManifestEntry | None = None) -> Plan:
    """What to change of a folder's only model so that an audit finds less, or nothing.

    `entry` is what a manifest says of the model.
    """
    state, renames = snapshot, UNCHANGED
    causes, found = list[Undoing](), list[Undoing]()
    before = now = examine_model(state, options, entry, keep=found.append)
    left: tuple[Left, ...] = ()
    for _ in range(_ROUNDS):
        steps, left, reached = _steps(state, found)
        together = UNCHANGED
        for step in steps:
            together = composed(together, step.renames)
        after, then = _with_index(
            reached, partial(examine_undiagnosed, options=options, entry=entry)
        )
        if not _better(now, then, together):
            break
        state, now, renames = after, then, composed(renames, together)
        causes += [step.undoing for step in steps]
        if not _alarms(now):
            left = ()
            break
        found = []
        now = examine_model(state, options, entry, keep=found.append)
    changes = _changes(snapshot, state, renames)
    return Plan(
        before=before,
        after=now,
        planned=state,
        causes=tuple(causes),
        left=left,
        changes=tuple(sorted(changes, key=lambda one: one.file)),
    )


def _steps(
    state: Snapshot, found: list[Undoing]
) -> tuple[list[FixStep], tuple[Left, ...], Snapshot]:
    """The undoings that can be written, those that cannot, and what the former come to."""
    steps, left = list[FixStep](), list[Left]()
    base, reached = state, state
    for undoing in found:
        try:
            step = step_of(base, undoing)
            reached = taken(reached, step)
            steps.append(step)
        except Unfixable as why:
            left.append(
                Left(
                    cause=undoing.cause,
                    summary=undoing.summary,
                    why=str(why),
                    instead=undoing.fix,
                )
            )
        base = undoing.snapshot
    return steps, tuple(left), reached


def _with_index(
    state: Snapshot, audited: Callable[[Snapshot], Report | Unaudited]
) -> tuple[Snapshot, Report | Unaudited]:
    """The same with an index made from the headers, where the audit finds fault with it."""
    report = audited(state)
    if not any(isinstance(one, BadIndex | WrongTotal) for one in _alarms(report)):
        return state, report
    index = rebuilt_index(state, report.observed)
    if index is None or index == state.index:
        return state, report
    rebuilt = replace(state, index=index, unopened=())
    after = audited(rebuilt)
    return (rebuilt, after) if _better(report, after, {}) else (state, report)


def _better(now: Report | Unaudited, then: Report | Unaudited, renames: Mapping[str, str]) -> bool:
    """Whether something alarming goes away, and nothing comes."""
    if isinstance(then, Unaudited) and isinstance(now, Report):
        return False
    before = {key for one in _alarms(now) for key in alarm_keys(one, renames)}
    after = {key for one in _alarms(then) for key in alarm_keys(one)}
    return after < before


def _alarms(outcome: Report | Unaudited) -> list[Finding]:
    return [one for one in outcome.findings if one.severity is not Severity.INFO]


def _changes(before: Snapshot, after: Snapshot, renames: Mapping[str, str]) -> Iterator[FileChange]:
    for one, other in zip(before.headers, after.headers, strict=True):
        table = one.parsed
        if one.prefix != other.prefix and isinstance(table, Header):
            names = [tensor.name for tensor in table.tensors if tensor.name in renames]
            yield FileChange(
                file=one.name,
                before=one.prefix[: LENGTH_BYTES + table.header_length],
                after=other.prefix,
                size=one.size or 0,
                renames=tuple((name, renames[name]) for name in names),
            )
    texts = (
        (before.config, after.config),
        (before.packing, after.packing),
        (before.index, after.index),
    )
    for old, new in texts:
        if new is not None and old != new:
            yield _of_text(old, new)


def _of_text(old: TextFile | None, new: TextFile) -> FileChange:
    return FileChange(
        file=new.name,
        before=None if old is None else old.content,
        after=new.content,
        size=0 if old is None else len(old.content),
        edits=tuple(json_edits(json_values(old), json_values(new))),
    )
