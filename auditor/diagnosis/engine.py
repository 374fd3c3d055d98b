"""The search for causes: test one undoing after another, keep those that remove findings.

An undoing reverses a possible cause in memory, and the changed snapshot is audited again. It closes
the alarms that this audit no longer has, and opens the alarms that are new.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic.config_keys import written
from auditor.analytic.name_forms import NameForms
from auditor.analytic.outline import ClassTree
from auditor.checkpoint.changes import with_values
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.alternatives import decided
from auditor.diagnosis.case import UNCHANGED, AlarmKey, Case, Shapes, Undoing, alarm_keys, composed
from auditor.diagnosis.causes import (
    adapter_base,
    config_field,
    custom_code,
    dtype_doubled,
    empty_file,
    foreign_names,
    fused_names,
    half_resized,
    head_not_saved,
    layers_renumbered,
    lost_part,
    moved_names,
    other_architecture,
    other_class,
    other_size,
    parallel_rank,
    partial_upload,
    pointer_file,
    quantization,
    quantization_settings,
    stale_index,
    stored_twice,
    transposed,
    truncated,
    two_saves,
    uneven_layers,
    unmerged_adapter,
    unsharded_save,
)
from auditor.diagnosis.remedies import judged
from auditor.diagnosis.repository import with_repository
from auditor.errors import CheckpointError
from auditor.findings import (
    BadQuantization,
    Duplicate,
    Mismatched,
    Missing,
    NewlyInitialized,
    Severity,
    Unexpected,
    Unused,
    WrongDtype,
    is_of_repository,
)
from auditor.name_kinds import MOST_KINDS
from auditor.reconciler.reconcile import is_remnant
from auditor.report import Diagnosis, Report, Unaudited

Cause = Callable[[Case], Iterator[Undoing]]

# Causes in the files themselves; tested even without a config.
OF_FILES: tuple[Cause, ...] = (
    pointer_file.undoings,
    truncated.undoings,
    two_saves.undoings,
    stored_twice.undoings,
    stale_index.undoings,
    partial_upload.undoings,
)

# Causes in GGUF files, whose names and metadata no cause changes.
OF_GGUF: tuple[Cause, ...] = (
    pointer_file.undoings,
    truncated.undoings,
    partial_upload.undoings,
)

# Causes of files with next to nothing of the model, for which no names or values are tried.
_OF_REMNANTS: tuple[Cause, ...] = (*OF_FILES, empty_file.undoings, unsharded_save.undoings)

# The causes with the smallest changes come first: files, names, shapes, a field, a class. If two
# causes explain the same findings, the earlier cause is reported.
CAUSES: tuple[Cause, ...] = (
    *OF_FILES,
    empty_file.undoings,
    dtype_doubled.undoings,
    unmerged_adapter.undoings,
    adapter_base.undoings,
    moved_names.undoings,
    layers_renumbered.undoings,
    head_not_saved.undoings,
    config_field.of_adapter,
    other_size.undoings,
    transposed.undoings,
    fused_names.undoings,
    foreign_names.undoings,
    unsharded_save.undoings,
    parallel_rank.undoings,
    half_resized.undoings,
    config_field.undoings,
    moved_names.of_other_modules,
    quantization_settings.undoings,
    quantization.undoings,
    uneven_layers.undoings,
    lost_part.undoings,
    other_class.undoings,
    head_not_saved.of_classifier,
    other_architecture.undoings,
)

# Groups of causes whose changes are equally likely if they change equally many fields. If one cause
# explains the findings, the others of its group are tested too. So are the further undoings of the
# cause itself if they have `either`. Each that explains the same findings is reported with it.
_RIVALS: tuple[frozenset[Cause], ...] = (
    frozenset(
        {
            head_not_saved.undoings,
            other_size.undoings,
            half_resized.undoings,
            config_field.undoings,
            quantization_settings.undoings,
            quantization.undoings,
        }
    ),
    frozenset({parallel_rank.undoings, lost_part.undoings, head_not_saved.of_classifier}),
)

# Limits of one diagnosis: audits, and tensors over all audits. An audit of 200 tensors takes 4 ms,
# one of 92,000 half a second.
MOST_TRIED = 40
MOST_TENSORS = 200_000

# Limits of a name: characters and dots. Names of published models have at most 120 and 12.
LONGEST, MOST_PARTS = 400, 40

# Seconds of processor time after which no further undoing is tried.
MOST_SECONDS = 4.0

_MOST_OTHERS = 3  # rivals that a summary names

_DEEPEST = 3  # the most undoings of one diagnosis, each applied to the previous one's snapshot

# New alarms that an undoing may open on a name that had an alarm before: the name is now expected,
# and the next undoing can correct the remaining difference.
_REACHED = frozenset({Mismatched.kind, WrongDtype.kind, Duplicate.kind, BadQuantization.kind})

Again = Callable[[Snapshot, str | None], Report | Unaudited]


class _Closing(NamedTuple):
    """An undoing and the alarms that it closes; a later undoing may close those that it opens."""

    undoing: Undoing
    report: Report | Unaudited  # after the undoing
    closed: frozenset[AlarmKey]  # alarms that the undoing closes, with the names after renaming
    opened: frozenset[AlarmKey]
    left: int  # number of alarms that remain

    @property
    def explained(self) -> int:
        """The number of alarms that the undoing closes, minus the number that it opens."""
        return len(self.closed) - len(self.opened)


def diagnose(  # noqa: PLR0913 - the report, and four functions of a changed snapshot
    report: Report | Unaudited,
    snapshot: Snapshot,
    again: Again,
    *,
    target: str | None = None,
    classes: Callable[[str], tuple[str, ...]],
    implied: Callable[..., Shapes | None],
    tree: Callable[..., ClassTree | None],
    forms: Callable[..., NameForms],
    keep: Callable[[Undoing], None] = lambda _: None,
) -> tuple[Diagnosis, ...]:
    """Return the causes of a report's alarming findings, those that explain most first.

    Four functions take a changed snapshot: `again` audits it (for a class if one is given),
    `implied` returns the shapes that its config implies (cheaper), `tree` the class's blocks
    (cheapest), and `forms` the forms of names. A finding that no undoing closes gets no cause.
    `keep` receives the undoing of each cause; each undoing starts from the snapshot of the previous
    one.
    """
    closings: list[_Closing] = []
    tries = _Tries(again)

    def case_of(report: Report | Unaudited, snapshot: Snapshot) -> Case:
        return Case(
            snapshot=snapshot,
            report=report,
            target=target,
            classes=classes,
            implied=partial(implied, target=target),
            tree=partial(tree, target=target),
            forms=partial(forms, target=target),
        )

    case = case_of(report, snapshot)
    for _ in range(_DEEPEST):
        if not (case.alarms and _has_ordinary_names(case)):
            break
        closing = _best(case, tries)
        if closing is None or _repeats(closing, closings):
            break
        closings.append(closing)
        target = closing.undoing.target or target
        case = case_of(closing.report, closing.undoing.snapshot)
    undoings = judged(case, snapshot, [one.undoing for one in closings])
    closings = [one._replace(undoing=each) for one, each in zip(closings, undoings, strict=True)]
    for undoing in undoings:
        keep(undoing)
    stored = _elements(snapshot)
    causes = (*custom_code.declared(report, snapshot), *_diagnoses(closings, report, stored))
    return with_repository(causes, report, case.report)


def _has_ordinary_names(case: Case) -> bool:
    """Whether names have ordinary length and number; causes split each name many times."""
    if max(map(len, case.shapes), default=0) > LONGEST:
        return False
    kinds = case.stored_kinds
    return len(kinds) <= MOST_KINDS and all(one.pattern.count(".") <= MOST_PARTS for one in kinds)


def _repeats(closing: _Closing, closings: list[_Closing]) -> bool:
    """Whether an undoing changes a config key that an earlier undoing of the diagnosis changed."""
    keys = {key for one in closings for key in _changed_keys(one.undoing)}
    return not keys.isdisjoint(_changed_keys(closing.undoing))


def _changed_keys(undoing: Undoing) -> set[str]:
    alternatives = (key for values in undoing.alternatives for key in values)
    return {*(key for key, *_ in undoing.fields), *alternatives}


class _Tries:
    """The audits of changed snapshots, within the limits of one diagnosis."""

    def __init__(self, again: Again) -> None:
        self._again = again
        self._audits, self._tensors = MOST_TRIED, MOST_TENSORS
        self._since = time.thread_time()

    def left(self, size: int) -> bool:
        """Whether the limits allow another audit of a model with this many tensors."""
        in_time = time.thread_time() - self._since < MOST_SECONDS
        return in_time and self._audits > 0 and self._tensors >= size

    def __call__(self, snapshot: Snapshot, target: str | None, size: int) -> Report | Unaudited:
        """Return the outcome of auditing a changed snapshot."""
        self._audits, self._tensors = self._audits - 1, self._tensors - size
        return self._again(snapshot, target)


def _best(case: Case, tries: _Tries) -> _Closing | None:
    """Return the first undoing that closes every alarm, else the one that leaves fewest alarms.

    Its summary names the undoings that are as good: they close the same alarms by a change that is
    as small.
    """
    best: _Closing | None = None
    best_cause: Cause | None = None
    rivals: list[Undoing] = []
    was_compared = isinstance(case.report, Report) and case.config
    causes = CAUSES if was_compared else OF_FILES
    if was_compared and is_remnant(case.count_of(Missing), len(case.shapes)):
        causes = _OF_REMNANTS
    if any(head.name.lower().endswith(".gguf") for head in case.snapshot.headers):
        causes = OF_GGUF
    for cause in causes:
        costs_as_much = any({cause, best_cause} <= group for group in _RIVALS)
        if best is not None and not best.left and not costs_as_much:
            continue
        for undoing in _undoings(cause, case) if tries.left(case.size) else ():
            is_small = best is not None and (
                costs_as_much and _is_rival(undoing, best.undoing)
                if cause is not best_cause
                else _is_alternative(undoing, best.undoing)
            )
            if best is None or best.left or is_small:
                closing = _closing(case, undoing, tries)
                if closing and (best is None or closing.left < best.left):
                    best, best_cause, rivals = closing, cause, []
                elif closing and best and is_small and _closes_as_much(closing, best):
                    rivals.append(undoing)
            is_done = best is not None and not (best.left or best.undoing.either)
            if is_done or not tries.left(case.size):
                break  # computing the next undoing would take time as well
    return best and best._replace(undoing=_decided(case, best, rivals, tries))


def _decided(case: Case, best: _Closing, rivals: list[Undoing], tries: _Tries) -> Undoing:
    """Return the undoing with its alternatives, which explain the same alarms."""
    alike = [one for one in rivals if one.cause == best.undoing.cause]
    left = _alarming(best.report)

    def fits(values: Mapping[str, Any]) -> bool:
        """Whether an audit with these values finds no more than with the best ones."""
        if not tries.left(case.size):
            return True
        changed = with_values(case.snapshot, written(case.config, values))
        return _alarming(tries(changed, case.target, case.size)) <= left

    lost = frozenset(_lost_keys(case, best, tries))
    undoing = decided(case, best.undoing, alike, lost, fits)
    if undoing.alternatives:
        rivals = [one for one in rivals if one not in alike]
    return _with_rivals(undoing, rivals)


def _lost_keys(case: Case, best: _Closing, tries: _Tries) -> Iterator[str]:
    """Yield the keys whose solved values only make tensors unexpected that are not stored.

    These are flags, words and lists, and numbers of which 0 or null remains. A smaller number of
    layers is what the files hold.
    """
    undoing = best.undoing
    left = _alarming(best.report)
    for path, declared, held in undoing.fields if undoing.values else ():
        if not config_field.is_choice(case, declared, held):
            continue
        closed = best.closed
        if len(undoing.fields) > 1:
            if not tries.left(case.size):
                return
            back = with_values(undoing.snapshot, written(case.config, {path: declared}))
            closed = _alarming(tries(back, undoing.target or case.target, case.size)) - left
        if {kind for kind, _ in closed} == {Missing.kind}:
            yield path


def _undoings(cause: Cause, case: Case) -> Iterator[Undoing]:
    """Yield the undoings of a cause, up to a config that it tries and that implies no tensors."""
    with suppress(CheckpointError):
        yield from cause(case)


def _is_rival(theirs: Undoing, ours: Undoing) -> bool:
    """Whether another cause's undoing sets equally many keys, and not to the same values."""
    is_other = not ours.fields or theirs.fields != ours.fields
    return theirs.cause != ours.cause and is_other and len(theirs.fields) == len(ours.fields)


def _is_alternative(theirs: Undoing, ours: Undoing) -> bool:
    """Whether an undoing of the same cause is another change that is as small."""
    is_other = (theirs.fields, theirs.renames) != (ours.fields, ours.renames)
    can_be = bool(theirs.either and ours.either)
    return can_be and is_other and len(theirs.fields) == len(ours.fields)


def _closes_as_much(one: _Closing, best: _Closing) -> bool:
    """Whether an undoing closes the alarms that the best one closes, and leaves no more to say.

    New names may need no alarm, and be the expected names only without their prefix.
    """
    same = (one.closed, one.opened) == (best.closed, best.opened) or not (one.left or best.left)
    infos, fewest = (sum(found.count for found in each.report.findings) for each in (one, best))
    return same and infos <= fewest


def _with_rivals(undoing: Undoing, rivals: list[Undoing]) -> Undoing:
    """Return the undoing with a clause about each rival, which explains the same alarms."""
    others = [one.either for one in rivals if one.cause == undoing.cause]
    fixes = {one.cause: one for one in rivals if one.cause != undoing.cause}
    others += [f"{one.cause}: {one.summary}" for one in fixes.values()]
    if not others:
        return undoing
    more = f", or {len(others) - _MOST_OTHERS} more" if len(others) > _MOST_OTHERS else ""
    rest = f"{' or '.join(others[:_MOST_OTHERS])}{more}"
    clause = f"(or {rest}, which would explain as much; the files do not decide)"
    return replace(
        undoing,
        summary=f"{undoing.summary} {clause}",
        fix="; or ".join((undoing.fix, *(one.fix for one in fixes.values()))),
        certain=False,
    )


def _after(case: Case, undoing: Undoing, tries: _Tries) -> Report | Unaudited | None:
    """Return the audit of the changed snapshot, or the old report without the proven findings.

    Return None if the changed snapshot can no longer be audited.
    """
    if not undoing.proven:
        after = tries(undoing.snapshot, undoing.target or case.target, case.size)
        return after if isinstance(after, Report | type(case.report)) else None
    proven = set(map(id, undoing.proven))
    others = (finding for finding in case.report.findings if id(finding) not in proven)
    return replace(case.report, findings=tuple(others))


def _closing(case: Case, undoing: Undoing, tries: _Tries) -> _Closing | None:
    """Return the effect of an undoing; None if it closes too few alarms or opens forbidden ones."""
    after = _after(case, undoing, tries)
    if after is None:
        return None
    known = _alarming(case.report, undoing.renames)
    # A head that the other class ties may be stored all the same.
    allowed = {Unexpected.kind} if case.unnamed else {Duplicate.kind} if undoing.exact else set()
    left = frozenset(key for key in _alarming(after) if key in known or key[0] not in allowed)
    names = {name for _, name in known}
    opened = left - known
    if any(kind not in _REACHED or name not in names for kind, name in opened):
        return None
    unsettled = any(one.kind in {NewlyInitialized.kind, Unused.kind} for one in after.findings)
    if undoing.exact and (left or unsettled):
        return None
    closing = _Closing(undoing, after, known - left, opened, len(left))
    kinds = {kind for kind, _ in closing.closed} - {Duplicate.kind}
    if undoing.fields and kinds == {Missing.kind} and Unexpected.kind in dict(left):
        return None  # the missing tensors are rather stored under other names
    # Renaming closes two alarms of a tensor (missing, unexpected) for each one that it opens.
    return closing if closing.closed and 2 * len(opened) <= len(closing.closed) else None


def _alarming(
    report: Report | Unaudited, renames: Mapping[str, str] = UNCHANGED
) -> frozenset[AlarmKey]:
    """Return (kind, name after renaming) for each name of the alarming findings."""
    alarms = (
        finding
        for finding in report.findings
        if finding.severity is not Severity.INFO and not is_of_repository(finding)
    )
    return frozenset(key for finding in alarms for key in alarm_keys(finding, renames))


def _elements(snapshot: Snapshot) -> int:
    """Return the number of elements of all tensors that could be read."""
    tables = (head.parsed for head in snapshot.headers)
    read = (table for table in tables if not isinstance(table, CheckpointError))
    return sum(tensor.elements or 0 for table in read for tensor in table.tensors)


def _diagnoses(
    closings: list[_Closing], report: Report | Unaudited, stored: int
) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each undoing; the first states how much all explain together.

    What remains is unknown if an undoing is proven without an audit, if it is not known to be the
    right one, or if its snapshot has more elements than are `stored`: weights that nobody has read.
    """
    renames = UNCHANGED  # by all undoings so far: original name -> new name
    total, audited = len(_alarming(report)), True
    for at, closing in enumerate(closings):
        renames = composed(renames, closing.undoing.renames)
        names = closing.explained
        explained = _counted(names, names + closing.left)
        if at == 0 and closing.left and len(closings) > 1:
            left = closings[-1].left
            explained += f", and with the next {'two' if len(closings) > 2 else 'one'}: "  # noqa: PLR2004
            explained += _counted(total - left, total)
        undoing = closing.undoing
        audited &= undoing.certain and not (undoing.proven or undoing.refused)
        audited &= _elements(undoing.snapshot) <= stored
        yield replace(
            _diagnosis(closing, report, renames, explained),
            remaining=len(closing.report.alarms) if audited else None,
        )


def _counted(names: int, of: int) -> str:
    if names == of:
        return "the one name" if names == 1 else f"all {names:,} names"
    return f"{names:,} {'name' if names == 1 else 'names'} of {of:,}"


def _diagnosis(
    closing: _Closing, report: Report | Unaudited, renames: Mapping[str, str], explained: str
) -> Diagnosis:
    undoing = closing.undoing
    names = {name for _, name in closing.closed}
    alarms = [
        (at, finding)
        for at, finding in enumerate(report.findings)
        if finding.severity is not Severity.INFO and not is_of_repository(finding)
    ]
    claimed = [at for at, one in alarms if not closing.closed.isdisjoint(alarm_keys(one, renames))]
    # An alarm opened by an earlier undoing replaces one of the report with the same name.
    claimed = claimed or [
        at for at, one in alarms if any(name in names for _, name in alarm_keys(one, renames))
    ]
    severities = {report.findings[at].severity for at in claimed}
    return Diagnosis(
        cause=undoing.cause,
        severity=Severity.ERROR if Severity.ERROR in severities else Severity.WARNING,
        summary=undoing.summary,
        explains=explained,
        fix=undoing.fix,
        fields=undoing.fields,
        undetermined=undoing.undetermined,
        alternatives=undoing.alternatives,
        findings=tuple(claimed),
        evidence=undoing.evidence,
    )
