"""Causes of level repository: each is a finding already, which says what to do."""

from collections.abc import Iterator
from dataclasses import replace

from auditor.reconciler.findings import OfKeys, UnknownConfigKey
from auditor.report import Diagnosis, Report, Unaudited


def with_repository(
    found: tuple[Diagnosis, ...], report: Report | Unaudited
) -> tuple[Diagnosis, ...]:
    """The causes of both levels; a field that a misspelt key left at its default is no second."""
    own = [*_of_repository(report)]
    left: list[Diagnosis] = []
    for one in found:
        spelt = next((at for at, of in enumerate(own) if _misspelt(of, report, one)), None)
        if spelt is None:
            left.append(one)
        else:
            both = tuple(sorted({*own[spelt].findings, *one.findings}))
            own[spelt] = replace(own[spelt], findings=both, severity=one.severity)
    return (*left, *own)


def _of_repository(report: Report | Unaudited) -> Iterator[Diagnosis]:
    for place, finding in enumerate(report.findings):
        if isinstance(finding, OfKeys):
            yield Diagnosis(
                cause=finding.kind,
                severity=finding.severity,
                level="repository",
                summary=finding.reason,
                fix=finding.fix,
                findings=(place,),
                evidence=finding.names,
            )


def _misspelt(own: Diagnosis, report: Report | Unaudited, other: Diagnosis) -> bool:
    """Whether the other cause is but the default of the key that the misspelt one stands for."""
    finding = report.findings[own.findings[0]]
    if not isinstance(finding, UnknownConfigKey):
        return False
    meant = finding.says[-1][1]
    return other.cause == "config-field" and {key for key, *_ in other.fields} == {meant}
