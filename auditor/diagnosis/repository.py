"""Causes of level repository: each is a finding already, which says what to do."""

from collections.abc import Iterator
from dataclasses import replace

from auditor.reconciler.findings import ConfigContradiction, OfKeys, UnknownConfigKey
from auditor.report import Diagnosis, Report, Unaudited


def with_repository(
    found: tuple[Diagnosis, ...], report: Report | Unaudited
) -> tuple[Diagnosis, ...]:
    """The causes of both levels, each fault under one of them.

    A field that a misspelt key left at its default is that key's; a field that contradicts others
    once it is wrong (a number of layers) is the field's.
    """
    own = [*_of_repository(report)]
    left: list[Diagnosis] = []
    for one in found:
        keys = {key for key, *_ in one.fields}
        same = [of for of in own if keys & config_keys_of(of, report)]
        claimed = {place for of in (*same, one) for place in of.findings}
        spelt = next((of for of in same if of.cause == UnknownConfigKey.kind), None)
        kept = replace(spelt or one, findings=tuple(sorted(claimed)), severity=one.severity)
        own = [of for of in own if of not in same] + ([kept] if spelt else [])
        left += [] if spelt else [kept]
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


def config_keys_of(own: Diagnosis, report: Report | Unaudited) -> frozenset[str]:
    """The keys of the config that a contradiction or a slip is about."""
    finding = report.findings[own.findings[0]]
    if not isinstance(finding, ConfigContradiction | UnknownConfigKey):
        return frozenset()
    return frozenset(key for _, key, _ in finding.says)
