"""Add findings about numbers or files to an outcome, and a cause for each error or warning.

The counts of the outcome and its residual stay unchanged.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from auditor.findings import (
    DifferingDuplicate,
    EqualDuplicate,
    Finding,
    Severity,
    TiedCopyDiffers,
    is_of_values,
    kind_of,
)
from auditor.findings.ignore import Ignore, split
from auditor.report import Diagnosis, Report, Unaudited, in_order

_JUDGED_COPIES = (DifferingDuplicate, EqualDuplicate, TiedCopyDiffers)


def with_more_findings(
    outcome: Report | Unaudited,
    new: Iterable[Finding],
    ignore: tuple[Ignore, ...],
    *,
    old: Sequence[tuple[Finding, ...]] | None = None,
    notes: Iterable[str] = (),
) -> Report | Unaudited:
    """Return the outcome with added findings; the findings `old[i]` replace its finding i."""
    old = [(finding,) for finding in outcome.findings] if old is None else old
    reported, ignored = split([*chain(*old), *new], ignore)
    findings = in_order(reported)
    place_by_id = {id(finding): at for at, finding in enumerate(findings)}
    moved = (_moved(diagnosis, old, place_by_id) for diagnosis in outcome.diagnosis)
    diagnosis = [cause for cause in moved if cause is not None]
    explained = {at for cause in diagnosis for at in cause.findings}
    return replace(
        outcome,
        findings=findings,
        ignored=in_order((*outcome.ignored, *ignored)),
        diagnosis=(*diagnosis, *_causes(findings, explained)),
        notes=(*outcome.notes, *notes),
    )


def _moved(
    diagnosis: Diagnosis, old: Sequence[tuple[Finding, ...]], place_by_id: Mapping[int, int]
) -> Diagnosis | None:
    """Return the cause with its findings' new indices; None if all of them are harmless.

    If a finding about a tied copy was replaced, the advice of the new finding is the fix.
    """
    findings = [finding for at in diagnosis.findings for finding in old[at]]
    if diagnosis.findings and all(one.severity is Severity.INFO for one in findings):
        return None
    places = sorted(place_by_id[id(one)] for one in findings if id(one) in place_by_id)
    judged = [kind for one in findings if (kind := kind_of(one)) in _JUDGED_COPIES]
    fix = judged[0].to_do if judged else diagnosis.fix
    return replace(diagnosis, findings=tuple(places), fix=fix)


def _causes(findings: tuple[Finding, ...], explained: Container[int]) -> Iterator[Diagnosis]:
    """Yield a cause for each error or warning about values that no other cause explains."""
    for at, finding in enumerate(findings):
        is_alarm = finding.severity is not Severity.INFO
        if is_alarm and is_of_values(finding) and at not in explained:
            yield Diagnosis(
                cause=finding.kind,
                severity=finding.severity,
                level="values",
                summary=f"{', '.join(finding.names[:2])}: {finding.reason}"
                if len(finding.names) <= 2  # noqa: PLR2004
                else f"{len(finding.names):,} tensors: {finding.reason}",
                fix=kind_of(finding).to_do,
                findings=(at,),
                evidence=(finding.reason,),
            )


_HEADERS_ALONE = "values: only headers are read, no weight is"


def without_headers_alone(outcome: Report | Unaudited) -> tuple[str, ...]:
    """Return the lines on what was not checked, without the line that only headers were read."""
    return tuple(one for one in outcome.unchecked if one != _HEADERS_ALONE)
