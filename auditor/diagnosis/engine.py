"""Hypotheses in turn, cheapest first: what closes findings when it is undone is their cause."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.case import Case, Shapes, Undoing
from auditor.diagnosis.causes import (
    config_field,
    dtype_doubled,
    head_not_saved,
    layers_renumbered,
    other_class,
    quantization,
    wrapper_prefix,
)
from auditor.reconciler.findings import Finding, NewlyInitialized, Severity, Unused
from auditor.report import Diagnosis, Report, Unaudited

# In the order of how little they change: names, a field, a class. Of two that close the same
# findings the earlier one is named.
CAUSES: tuple[Callable[[Case], Iterator[Undoing]], ...] = (
    dtype_doubled.undoings,
    wrapper_prefix.undoings,
    layers_renumbered.undoings,
    head_not_saved.undoings,
    config_field.undoings,
    quantization.undoings,
    other_class.undoings,
)

# Audits of one diagnosis, and tensors in all of them: 200 tensors take 4 ms, 92,000 half a second.
MOST_TRIED = 40
MOST_TENSORS = 400_000

_DEEPEST = 2  # causes of one model

Again = Callable[[Snapshot, str | None], Report | Unaudited]


class _Closing(NamedTuple):
    """An undoing that closes findings and opens none."""

    undoing: Undoing
    report: Report  # after it
    findings: tuple[int, ...]  # that it closes, wholly or in part, by their place in the report
    names: int  # that it closes
    left: int  # alarming names that are left


def diagnose(
    report: Report,
    snapshot: Snapshot,
    again: Again,
    *,
    target: str | None = None,
    classes: Callable[[str], tuple[str, ...]],
    implied: Callable[..., Shapes | None],
) -> tuple[Diagnosis, ...]:
    """The causes of a report's alarming findings, most telling first.

    `again` audits a changed snapshot, for a class if one is given; `implied` says what its config
    implies, which takes less. What no undoing closes has no cause here.
    """
    found: list[Diagnosis] = []
    tries = _Tries(again, max(1, report.observed.tensors if report.observed else 1))
    now, seen = report, snapshot
    for _ in range(_DEEPEST):
        case = Case(
            snapshot=seen,
            report=now,
            target=target,
            classes=classes,
            implied=partial(implied, target=target),
        )
        if not case.alarms:
            break
        closing = _best(case, tries)
        if closing is None:
            break
        found.append(_diagnosis(closing, case, report))
        now, seen, target = (
            closing.report,
            closing.undoing.snapshot,
            closing.undoing.target or target,
        )
    return _merged(found)


class _Tries:
    """Audits again, as often as the bounds allow."""

    def __init__(self, again: Again, tensors: int) -> None:
        self._again = again
        self._left = max(2, min(MOST_TRIED, MOST_TENSORS // tensors))

    def __call__(self, snapshot: Snapshot, target: str | None) -> Report | None:
        """The report after a change; None: there is none, or no try is left."""
        if not self._left:
            return None
        self._left -= 1
        found = self._again(snapshot, target)
        return found if isinstance(found, Report) else None


def _best(case: Case, tries: _Tries) -> _Closing | None:
    """The first undoing that leaves nothing; else the one that leaves least."""
    best: _Closing | None = None
    for undoings in CAUSES:
        for undoing in undoings(case):
            after = tries(undoing.snapshot, undoing.target or case.target)
            closing = _closing(case, undoing, after) if after else None
            if closing is None:
                continue
            if not closing.left:
                return closing
            if best is None or closing.left < best.left:
                best = closing
    return best


def _closing(case: Case, undoing: Undoing, after: Report) -> _Closing | None:
    """What an undoing closes; None: nothing, or it opens something else."""
    before = [_keys(finding, undoing) for finding in case.report.findings]
    left = {key for finding in after.findings if _alarms(finding) for key in _keys(finding)}
    alarming = {
        at: keys
        for at, (finding, keys) in enumerate(zip(case.report.findings, before, strict=True))
        if _alarms(finding)
    }
    known = {key for keys in alarming.values() for key in keys}
    if left - known or (left and undoing.exact):
        return None
    if undoing.exact and any(isinstance(one, NewlyInitialized | Unused) for one in after.findings):
        return None
    closed = {at: keys - left for at, keys in alarming.items() if keys - left}
    if not closed:
        return None
    names = sum(len(keys) for keys in closed.values())
    return _Closing(undoing, after, tuple(closed), names, len(left))


def _keys(finding: Finding, undoing: Undoing | None = None) -> frozenset[tuple[str, str]]:
    """Kind and name of all that a finding is about, by the names after an undoing."""
    renames = undoing.renames if undoing else {}
    names = finding.names or ("",)  # of a finding about the model as a whole
    return frozenset((finding.kind, renames.get(name, name)) for name in names)


def _alarms(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO


def _diagnosis(closing: _Closing, case: Case, report: Report) -> Diagnosis:
    undoing = closing.undoing
    whole = "this explains all" if not closing.left else "this explains"
    of = "" if not closing.left else f" of {closing.names + closing.left:,}"
    plural = "name" if closing.names == 1 else "names"
    said = f"{undoing.summary}: {whole} {closing.names:,} {plural}{of}"
    severities = [case.report.findings[at].severity for at in closing.findings]
    places = {id(finding): at for at, finding in enumerate(report.findings)}
    kept = [places.get(id(case.report.findings[at])) for at in closing.findings]
    return Diagnosis(
        cause=undoing.cause,
        severity=Severity.ERROR if Severity.ERROR in severities else Severity.WARNING,
        summary=said,
        fix=undoing.fix,
        fields=undoing.fields,
        findings=tuple(at for at in kept if at is not None),
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
