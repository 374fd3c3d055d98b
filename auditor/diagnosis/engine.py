"""Hypotheses in turn, cheapest first: what closes findings when it is undone is their cause."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.case import UNCHANGED, AlarmKey, Case, Shapes, Undoing, alarm_keys, composed
from auditor.diagnosis.causes import (
    config_field,
    custom_code,
    dtype_doubled,
    foreign_names,
    fused_names,
    half_resized,
    head_not_saved,
    layers_renumbered,
    lost_part,
    other_architecture,
    other_class,
    other_size,
    parallel_rank,
    partial_upload,
    pointer_file,
    quantization,
    quantization_settings,
    stale_index,
    transposed,
    truncated,
    two_saves,
    unmerged_adapter,
    unsharded_save,
    wrapper_prefix,
)
from auditor.diagnosis.name_kinds import MOST_KINDS
from auditor.diagnosis.repository import with_repository
from auditor.diagnosis.solving.forms import NameForms
from auditor.diagnosis.solving.trials import ClassTree
from auditor.reconciler.findings import (
    NewlyInitialized,
    Severity,
    Unexpected,
    Unused,
    is_of_repository,
)
from auditor.report import Diagnosis, Report, Unaudited

Cause = Callable[[Case], Iterator[Undoing]]

# Of files alone, whether or not there is a config.
OF_FILES: tuple[Cause, ...] = (
    pointer_file.undoings,
    truncated.undoings,
    two_saves.undoings,
    stale_index.undoings,
    partial_upload.undoings,
)

# In the order of how little they change: files, names, shapes, a field, a class. Of two that close
# the same findings the earlier one is named.
CAUSES: tuple[Cause, ...] = (
    *OF_FILES,
    dtype_doubled.undoings,
    unmerged_adapter.undoings,
    wrapper_prefix.undoings,
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
    quantization_settings.undoings,
    quantization.undoings,
    config_field.undoings,
    lost_part.undoings,
    other_class.undoings,
    head_not_saved.of_classifier,
    other_architecture.undoings,
)

# Audits of one diagnosis, and tensors in all of them: 200 tensors take 4 ms, 92,000 half a second.
MOST_TRIED = 40
MOST_TENSORS = 200_000

# Characters and dots of a name; those of published models have at most 120 and 12.
LONGEST, MOST_PARTS = 400, 40

# Seconds of processor time after which no other undoing is tried.
MOST_SECONDS = 4.0

# Tensors from which on an audit takes longer than a look at the names: 0.1 s.
_LARGE = 5000

_DEEPEST = 2  # causes of one model

Again = Callable[[Snapshot, str | None], Report | Unaudited]


class _Closing(NamedTuple):
    """An undoing that closes findings and opens none."""

    undoing: Undoing
    report: Report | Unaudited  # after it
    closed: frozenset[AlarmKey]  # kinds and names that it closes, by the names after it
    left: int  # alarming ones that are left


def diagnose(  # noqa: PLR0913 - the report, and three ways to ask what a change would come to
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
    """The causes of a report's alarming findings, most telling first.

    `again` audits a changed snapshot, for a class if one is given; `implied` says what its config
    implies, which takes less, `tree` its blocks, which takes least, and `forms` how its names are
    spelt. What no undoing closes has no cause here. `keep` gets the undoing of each cause, each
    with a snapshot that goes on from the last one's.
    """
    found: list[Diagnosis] = []
    tries = _Tries(again)
    now, seen = report, snapshot
    renames = UNCHANGED  # of the original names, by all undoings so far
    for _ in range(_DEEPEST):
        case = Case(
            snapshot=seen,
            report=now,
            target=target,
            classes=classes,
            implied=partial(implied, target=target),
            tree=partial(tree, target=target),
            forms=partial(forms, target=target),
        )
        if not (case.alarms and _has_ordinary_names(case)):
            break
        closing = _best(case, tries)
        if closing is None or _again_of(closing, found):
            break
        renames = composed(renames, closing.undoing.renames)
        found.append(_diagnosis(closing, report, renames))
        keep(closing.undoing)
        now, seen, target = (
            closing.report,
            closing.undoing.snapshot,
            closing.undoing.target or target,
        )
    said = (*custom_code.declared(report, snapshot), *_merged(found))
    return with_repository(said, report, now)


def _has_ordinary_names(case: Case) -> bool:
    """Whether the names are such as models have: causes take names apart, over and over."""
    if max(map(len, case.shapes), default=0) > LONGEST:
        return False
    kinds = case.stored_kinds
    return len(kinds) <= MOST_KINDS and all(one.pattern.count(".") <= MOST_PARTS for one in kinds)


def _again_of(closing: _Closing, found: list[Diagnosis]) -> bool:
    """Whether it would change once more what was changed already: then neither is the cause."""
    keys = {key for one in found for key, *_ in one.fields}
    return any(key in keys for key, *_ in closing.undoing.fields)


class _Tries:
    """Audits again, as often as the bounds allow."""

    def __init__(self, again: Again) -> None:
        self._again = again
        self._audits, self._tensors = MOST_TRIED, MOST_TENSORS
        self._since = time.thread_time()

    def left(self, size: int) -> bool:
        """Whether a model of that many tensors may be audited again."""
        in_time = time.thread_time() - self._since < MOST_SECONDS
        return in_time and self._audits > 0 and self._tensors >= size

    def __call__(
        self, snapshot: Snapshot, target: str | None, size: int
    ) -> Report | Unaudited | None:
        """The outcome after a change; None: no try is left."""
        self._audits, self._tensors = self._audits - 1, self._tensors - size
        if self._audits < 0 or self._tensors < 0:
            return None
        return self._again(snapshot, target)


def _best(case: Case, tries: _Tries) -> _Closing | None:
    """The first undoing that leaves nothing; else the one that leaves least."""
    best: _Closing | None = None
    if not tries.left(case.size):
        return None
    known = isinstance(case.report, Report) and case.config
    causes = CAUSES if known else OF_FILES
    for undoing in _proposed(case, causes, tries):
        if not _promises(case, undoing):
            continue
        after = _after(case, undoing, tries)
        closing = _closing(case, undoing, after) if after else None
        if closing is not None and not closing.left:
            return closing
        if closing is not None and (best is None or closing.left < best.left):
            best = closing
        if not tries.left(case.size):
            break  # before the next one is made, which takes time by itself
    return best


def _proposed(case: Case, causes: tuple[Cause, ...], tries: _Tries) -> Iterator[Undoing]:
    """What the causes propose in turn; none is asked when the time is up, for asking takes some."""
    for undoings in causes:
        if not tries.left(case.size):
            return
        yield from undoings(case)


def _after(case: Case, undoing: Undoing, tries: _Tries) -> Report | Unaudited | None:
    """The report on the changed snapshot; or, of what is proven, the report without it.

    None: the change makes of what was audited what cannot be.
    """
    if not undoing.proven:
        after = tries(undoing.snapshot, undoing.target or case.target, case.size)
        return after if isinstance(after, Report | type(case.report)) else None
    proven = set(map(id, undoing.proven))
    left = (finding for finding in case.report.findings if id(finding) not in proven)
    return replace(case.report, findings=tuple(left))


def _closing(case: Case, undoing: Undoing, after: Report | Unaudited) -> _Closing | None:
    """What an undoing closes; None: nothing, or it opens something else."""
    known = _alarming(case.report, undoing.renames)
    left = _alarming(after)
    opened = {key for key in left - known if not (case.unnamed and key[0] == Unexpected.kind)}
    if opened or (left and undoing.exact):
        return None
    if undoing.exact and any(isinstance(one, NewlyInitialized | Unused) for one in after.findings):
        return None
    return _Closing(undoing, after, known - left, len(left)) if known - left else None


def _alarming(
    report: Report | Unaudited, renames: Mapping[str, str] = UNCHANGED
) -> frozenset[AlarmKey]:
    """Kind and name of all that alarms, by the names after an undoing."""
    alarms = (
        finding
        for finding in report.findings
        if finding.severity is not Severity.INFO and not is_of_repository(finding)
    )
    return frozenset(key for finding in alarms for key in alarm_keys(finding, renames))


def _diagnosis(
    closing: _Closing, report: Report | Unaudited, renames: Mapping[str, str]
) -> Diagnosis:
    undoing, names = closing.undoing, len(closing.closed)
    many = "1 name" if names == 1 else f"{names:,} names"
    whole = "the one name" if names == 1 else f"all {many}"
    explained = f"{many} of {names + closing.left:,}" if closing.left else whole
    said = f"{undoing.summary}: this explains {explained}"
    claimed = tuple(
        at
        for at, finding in enumerate(report.findings)
        if finding.severity is not Severity.INFO
        and not is_of_repository(finding)
        and not closing.closed.isdisjoint(alarm_keys(finding, renames))
    )
    severities = {report.findings[at].severity for at in claimed}
    return Diagnosis(
        cause=undoing.cause,
        severity=Severity.ERROR if Severity.ERROR in severities else Severity.WARNING,
        summary=said,
        fix=undoing.fix,
        fields=undoing.fields,
        undetermined=undoing.undetermined,
        findings=claimed,
        evidence=undoing.evidence,
    )


def _merged(found: list[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Two fields of one config are one cause."""
    if len(found) == _DEEPEST and {one.cause for one in found} == {config_field.CAUSE}:
        first, second = found
        both = replace(
            first,
            summary=f"{first.summary}; {second.summary}",
            fix=f"{first.fix}; {second.fix}",
            fields=(*first.fields, *second.fields),
            findings=tuple(sorted({*first.findings, *second.findings})),
            evidence=(*first.evidence, *second.evidence),
        )
        return (both,)
    return tuple(found)


def _promises(case: Case, undoing: Undoing) -> bool:
    """Whether some of an undoing's names are missing ones, with or without their first part.

    That is asked of a large model before it is audited again. Loading may add or remove that part,
    the base model's prefix.
    """
    if case.size < _LARGE or not undoing.renames:
        return True
    near = case.near
    return any(name in near or name.partition(".")[2] in near for name in undoing.renames.values())
