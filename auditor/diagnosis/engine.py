"""The search for causes: test one proposed change after another, keep those that remove findings.

A proposal reverses a possible cause in memory, and the changed snapshot is audited again. It closes
the alarms that this audit no longer has, and opens the alarms that are new.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic.config_keys import changed
from auditor.analytic.name_forms import NameForms
from auditor.analytic.outline import ClassTree
from auditor.checkpoint.change import UNCHANGED, composed, with_config
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.alternatives import decided
from auditor.diagnosis.case import AlarmKey, Case, Proposal, Shapes, alarm_keys, config_of, is_alarm
from auditor.diagnosis.causes import config_field, custom_code
from auditor.diagnosis.known_causes import CAUSES, OF_FILES, OF_GGUF, OF_REMNANTS, RIVALS, Cause
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
)
from auditor.names.kinds import MOST_KINDS
from auditor.reconciler.reconcile import is_remnant
from auditor.report import Diagnosis, Report, Unaudited

# Limits of one diagnosis: audits, and tensors over all audits. An audit of 200 tensors takes 4 ms,
# one of 92,000 half a second.
MOST_TRIED = 40
MOST_TENSORS = 200_000

# Limits of a name: characters and dots. Names of published models have at most 120 and 12.
LONGEST, MOST_PARTS = 400, 40

# Seconds of processor time after which no further proposal is tried.
MOST_SECONDS = 4.0

_MOST_OTHERS = 3  # rivals that a summary names

# Why `fix` does not write a change that others explain as well.
UNCERTAIN = "the files do not determine that this reading is the right one"

_DEEPEST = 3  # the most proposals of one diagnosis, each applied to the previous one's snapshot

# New alarms that a proposal may open on a name that had an alarm before: the name is now expected,
# and the next proposal can correct the remaining difference.
_REACHED = frozenset({Mismatched.kind, WrongDtype.kind, Duplicate.kind, BadQuantization.kind})

Again = Callable[[Snapshot, str | None], Report | Unaudited]


class _Closing(NamedTuple):
    """A proposal and the alarms that it closes; a later proposal may close those that it opens."""

    proposal: Proposal
    snapshot: Snapshot  # after the change
    report: Report | Unaudited  # likewise
    closed: frozenset[AlarmKey]  # alarms that the proposal closes, with the names after renaming
    opened: frozenset[AlarmKey]
    left: int  # number of alarms that remain

    @property
    def explained(self) -> int:
        """The number of alarms that the proposal closes, minus the number that it opens."""
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
) -> tuple[Diagnosis, ...]:
    """Return the causes of a report's alarming findings, those that explain most first.

    Four functions take a changed snapshot: `again` audits it (for a class if one is given),
    `implied` returns the shapes that its config implies (cheaper), `tree` the class's blocks
    (cheapest), and `forms` the forms of names. A finding that no proposal closes gets no cause.
    Each cause's change starts from the snapshot after the previous one.
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
        target = closing.proposal.target or target
        case = case_of(closing.report, closing.snapshot)
    states = [snapshot, *(one.snapshot for one in closings)]
    proposals = judged(case, states, [one.proposal for one in closings])
    closings = [one._replace(proposal=each) for one, each in zip(closings, proposals, strict=True)]
    stored = _elements(snapshot)
    causes = (*custom_code.declared(report, snapshot), *_diagnoses(closings, report, stored))
    return with_repository(causes, report, case.report)


def _has_ordinary_names(case: Case) -> bool:
    """Whether names have ordinary length and number; causes split each name many times."""
    if max(map(len, case.shapes), default=0) > LONGEST:
        return False
    kinds = case.stored.kinds
    return len(kinds) <= MOST_KINDS and all(one.pattern.count(".") <= MOST_PARTS for one in kinds)


def _repeats(closing: _Closing, closings: list[_Closing]) -> bool:
    """Whether a proposal changes a config key that an earlier proposal of the diagnosis changed."""
    keys = {key for one in closings for key in _changed_keys(one.proposal)}
    return not keys.isdisjoint(_changed_keys(closing.proposal))


def _changed_keys(proposal: Proposal) -> set[str]:
    alternatives = (key for values in proposal.alternatives for key in values)
    return {*(key for key, *_ in proposal.fields), *alternatives}


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
    """Return the first proposal that closes every alarm, else the one that leaves fewest alarms.

    Its summary names the proposals that are as good: they close the same alarms by a change that is
    as small.
    """
    best: _Closing | None = None
    best_cause: Cause | None = None
    rivals: list[Proposal] = []
    was_compared = isinstance(case.report, Report) and case.config
    causes = CAUSES if was_compared else OF_FILES
    missing = sum(one.count for one in case.alarms if Missing.describes(one))
    if was_compared and is_remnant(missing, len(case.shapes)):
        causes = OF_REMNANTS
    if any(head.name.lower().endswith(".gguf") for head in case.snapshot.headers):
        causes = OF_GGUF
    for cause in causes:
        costs_as_much = any({cause, best_cause} <= group for group in RIVALS)
        if best is not None and not best.left and not costs_as_much:
            continue
        for proposal in _proposals(cause, case) if tries.left(case.size) else ():
            is_small = best is not None and (
                costs_as_much and _is_rival(proposal, best.proposal)
                if cause is not best_cause
                else _is_alternative(proposal, best.proposal)
            )
            if best is None or best.left or is_small:
                closing = _closing(case, proposal, tries)
                if closing and (best is None or closing.left < best.left):
                    best, best_cause, rivals = closing, cause, []
                elif closing and best and is_small and _closes_as_much(closing, best):
                    rivals.append(proposal)
            is_done = best is not None and not (best.left or best.proposal.either)
            if is_done or not tries.left(case.size):
                break  # computing the next proposal would take time as well
    return best and best._replace(proposal=_decided(case, best, rivals, tries))


def _decided(case: Case, best: _Closing, rivals: list[Proposal], tries: _Tries) -> Proposal:
    """Return the proposal with its alternatives, which explain the same alarms."""
    alike = [one for one in rivals if one.cause == best.proposal.cause]
    left = _alarming(best.report)

    def fits(values: Mapping[str, Any]) -> bool:
        """Whether an audit with these values finds no more than with the best ones."""
        if not tries.left(case.size):
            return True
        snapshot = with_config(case.snapshot, changed(case.config, values))
        return _alarming(tries(snapshot, case.target, case.size)) <= left

    lost = frozenset(_lost_keys(case, best, tries))
    proposal = decided(case, best.proposal, alike, lost, fits)
    if proposal.alternatives:
        rivals = [one for one in rivals if one not in alike]
    return _with_rivals(proposal, rivals)


def _lost_keys(case: Case, best: _Closing, tries: _Tries) -> Iterator[str]:
    """Yield the keys whose solved values only make tensors unexpected that are not stored.

    These are flags, words and lists, and numbers of which 0 or null remains. A smaller number of
    layers is what the files hold.
    """
    proposal = best.proposal
    left = _alarming(best.report)
    for path, declared, held in proposal.fields if proposal.values else ():
        if not config_field.is_choice(case, declared, held):
            continue
        closed = best.closed
        if len(proposal.fields) > 1:
            if not tries.left(case.size):
                return
            config = changed(config_of(best.snapshot), {path: declared})
            back = with_config(best.snapshot, config)
            closed = _alarming(tries(back, proposal.target or case.target, case.size)) - left
        if {kind for kind, _ in closed} == {Missing.kind}:
            yield path


def _proposals(cause: Cause, case: Case) -> Iterator[Proposal]:
    """Yield the proposals of a cause, up to a config that it tries and that implies no tensors."""
    with suppress(CheckpointError):
        yield from cause(case)


def _is_rival(theirs: Proposal, ours: Proposal) -> bool:
    """Whether another cause's proposal sets equally many keys, and not to the same values."""
    is_other = not ours.fields or theirs.fields != ours.fields
    return theirs.cause != ours.cause and is_other and len(theirs.fields) == len(ours.fields)


def _is_alternative(theirs: Proposal, ours: Proposal) -> bool:
    """Whether a proposal of the same cause is another change that is as small."""
    is_other = (theirs.fields, theirs.change.renames) != (ours.fields, ours.change.renames)
    can_be = bool(theirs.either and ours.either)
    return can_be and is_other and len(theirs.fields) == len(ours.fields)


def _closes_as_much(one: _Closing, best: _Closing) -> bool:
    """Whether a proposal closes the alarms that the best one closes, and leaves no more to say.

    New names may need no alarm, and be the expected names only without their prefix.
    """
    same = (one.closed, one.opened) == (best.closed, best.opened) or not (one.left or best.left)
    infos, fewest = (sum(found.count for found in each.report.findings) for each in (one, best))
    return same and infos <= fewest


def _with_rivals(proposal: Proposal, rivals: list[Proposal]) -> Proposal:
    """Return the proposal with a clause about each rival, which explains the same alarms."""
    others = [one.either for one in rivals if one.cause == proposal.cause]
    fixes = {one.cause: one for one in rivals if one.cause != proposal.cause}
    others += [f"{one.cause}: {one.summary}" for one in fixes.values()]
    if not others:
        return proposal
    more = f", or {len(others) - _MOST_OTHERS} more" if len(others) > _MOST_OTHERS else ""
    rest = f"{' or '.join(others[:_MOST_OTHERS])}{more}"
    clause = f"(or {rest}, which would explain as much; the files do not decide)"
    return replace(
        proposal,
        summary=f"{proposal.summary} {clause}",
        fix="; or ".join((proposal.fix, *(one.fix for one in fixes.values()))),
        certain=False,
        is_reading=False,
    )


def _after(
    case: Case, proposal: Proposal, tries: _Tries
) -> tuple[Snapshot, Report | Unaudited] | None:
    """Return the changed snapshot and its audit, or the old report without the proven findings.

    Return None if the changed snapshot can no longer be audited.
    """
    if not proposal.proven:
        snapshot = proposal.change.applied_to(case.snapshot)
        after = tries(snapshot, proposal.target or case.target, case.size)
        return (snapshot, after) if isinstance(after, Report | type(case.report)) else None
    proven = set(map(id, proposal.proven))
    others = (finding for finding in case.report.findings if id(finding) not in proven)
    return case.snapshot, replace(case.report, findings=tuple(others))


def _closing(case: Case, proposal: Proposal, tries: _Tries) -> _Closing | None:
    """Return the effect of a proposal; None if it closes too few alarms or opens forbidden ones."""
    effect = _after(case, proposal, tries)
    if effect is None:
        return None
    snapshot, after = effect
    known = _alarming(case.report, proposal.change.new_names)
    # A head that the other class ties may be stored all the same.
    allowed = {Unexpected.kind} if case.unnamed else {Duplicate.kind} if proposal.exact else set()
    left = frozenset(key for key in _alarming(after) if key in known or key[0] not in allowed)
    names = {name for _, name in known}
    opened = left - known
    if any(kind not in _REACHED or name not in names for kind, name in opened):
        return None
    unsettled = any(one.kind in {NewlyInitialized.kind, Unused.kind} for one in after.findings)
    if proposal.exact and (left or unsettled):
        return None
    closing = _Closing(proposal, snapshot, after, known - left, opened, len(left))
    kinds = {kind for kind, _ in closing.closed} - {Duplicate.kind}
    if proposal.fields and kinds == {Missing.kind} and Unexpected.kind in dict(left):
        return None  # the missing tensors are rather stored under other names
    # Renaming closes two alarms of a tensor (missing, unexpected) for each one that it opens.
    return closing if closing.closed and 2 * len(opened) <= len(closing.closed) else None


def _alarming(
    report: Report | Unaudited, renames: Mapping[str, str] = UNCHANGED
) -> frozenset[AlarmKey]:
    """Return (kind, name after renaming) for each name of the alarming findings."""
    alarms = filter(is_alarm, report.findings)
    return frozenset(key for finding in alarms for key in alarm_keys(finding, renames))


def _elements(snapshot: Snapshot) -> int:
    """Return the number of elements of all tensors that could be read."""
    tables = (head.parsed for head in snapshot.headers)
    read = (table for table in tables if not isinstance(table, CheckpointError))
    return sum(tensor.elements or 0 for table in read for tensor in table.tensors)


def _diagnoses(
    closings: list[_Closing], report: Report | Unaudited, stored: int
) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each proposal; the first states how much all explain together.

    What remains is unknown if a proposal is proven without an audit, if it is not known to be the
    right one, or if its snapshot has more elements than are `stored`: weights that nobody has read.
    """
    renames = UNCHANGED  # by all proposals so far: original name -> new name
    total, audited = len(_alarming(report)), True
    for at, closing in enumerate(closings):
        renames = composed(renames, closing.proposal.change.new_names)
        names = closing.explained
        explained = _counted(names, names + closing.left)
        if at == 0 and closing.left and len(closings) > 1:
            left = closings[-1].left
            explained += f", and with the next {'two' if len(closings) > 2 else 'one'}: "  # noqa: PLR2004
            explained += _counted(total - left, total)
        proposal = closing.proposal
        audited &= proposal.certain and not (proposal.proven or proposal.refused)
        audited &= _elements(closing.snapshot) <= stored
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
    proposal = closing.proposal
    names = {name for _, name in closing.closed}
    alarms = [(at, one) for at, one in enumerate(report.findings) if is_alarm(one)]
    claimed = [at for at, one in alarms if not closing.closed.isdisjoint(alarm_keys(one, renames))]
    # An alarm opened by an earlier proposal replaces one of the report with the same name.
    claimed = claimed or [
        at for at, one in alarms if any(name in names for _, name in alarm_keys(one, renames))
    ]
    severities = {report.findings[at].severity for at in claimed}
    return Diagnosis(
        cause=proposal.cause,
        severity=Severity.ERROR if Severity.ERROR in severities else Severity.WARNING,
        summary=proposal.summary,
        explains=explained,
        fix=proposal.fix,
        fields=proposal.fields,
        undetermined=proposal.undetermined,
        alternatives=proposal.alternatives,
        findings=tuple(claimed),
        evidence=proposal.evidence,
        change=proposal.change,
        unwritten=proposal.refused if proposal.certain or proposal.is_reading else UNCERTAIN,
        is_reading=proposal.is_reading,
    )
