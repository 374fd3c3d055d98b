"""Findings that numbers or files made, added to an outcome; each alarm among them is a cause.

No count and no residual changes by that.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc

from msgspec.structs import replace

from auditor.findings import Finding, Severity, of_values
from auditor.findings.ignore import Ignore, split
from auditor.report import Diagnosis, Report, Unaudited, in_order

_LEVEL = of_values.__name__


def with_more_findings(
    outcome: Report | Unaudited,
    new: Iterable[Finding],
    ignore: tuple[Ignore, ...],
    *,
    kept: Sequence[tuple[Finding, ...]] | None = None,
    notes: Iterable[str] = (),
) -> Report | Unaudited:
    """The outcome with the new findings; `kept` is what becomes of each of the old ones."""
    kept = [(one,) for one in outcome.findings] if kept is None else kept
    old = [part for parts in kept for part in parts]
    stand, ignored = split([*old, *new], ignore)
    findings = in_order(stand)
    places = {id(one): at for at, one in enumerate(findings)}
    moved = (_moved(one, kept, places) for one in outcome.diagnosis)
    known = tuple(one for one in moved if one is not None)
    return replace(
        outcome,
        findings=findings,
        ignored=in_order((*outcome.ignored, *ignored)),
        diagnosis=(*known, *_causes(findings, {at for one in known for at in one.findings})),
        notes=(*outcome.notes, *notes),
    )


def _moved(
    one: Diagnosis, kept: Sequence[tuple[Finding, ...]], places: Mapping[int, int]
) -> Diagnosis | None:
    """Return the diagnosis with new finding positions; None if all its findings are harmless."""
    parts = [part for at in one.findings for part in kept[at]]
    alarms = [part for part in parts if part.severity is not Severity.INFO]
    if one.findings and not alarms:
        return None
    found = sorted(places[id(part)] for part in parts if id(part) in places)
    return replace(one, findings=tuple(found))


def _causes(findings: tuple[Finding, ...], explained: Container[int]) -> Iterator[Diagnosis]:
    """Each alarm of the level values is a cause of its own, unless another cause explains it."""
    for at, finding in enumerate(findings):
        is_new = type(finding).__module__ == _LEVEL
        if is_new and finding.severity is not Severity.INFO and at not in explained:
            text = cleandoc(type(finding).__doc__ or "").split("To do: ")
            yield Diagnosis(
                cause=finding.kind,
                severity=finding.severity,
                level="values",
                summary=f"{', '.join(finding.names[:2])}: {finding.reason}"
                if len(finding.names) <= 2  # noqa: PLR2004
                else f"{len(finding.names):,} tensors: {finding.reason}",
                fix=" ".join(text[-1].split()),
                findings=(at,),
                evidence=(finding.reason,),
            )


_HEADERS_ALONE = "values: only headers are read, no weight is"


def without_headers_alone(outcome: Report | Unaudited) -> tuple[str, ...]:
    """Return the unchecked points without the sentence that only headers are read."""
    return tuple(one for one in outcome.unchecked if one != _HEADERS_ALONE)
