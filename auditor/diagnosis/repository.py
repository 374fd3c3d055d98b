"""Causes of level repository: each is a finding already, which says what to do."""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.reconciler.findings import ConfigContradiction, OfIds, OfKeys, UnknownConfigKey
from auditor.report import Diagnosis, Report, Unaudited


def with_repository(
    found: tuple[Diagnosis, ...], report: Report | Unaudited, after: Report | Unaudited
) -> tuple[Diagnosis, ...]:
    """The causes of both levels, each fault under one of them; `after` is what undoing leaves.

    A field that a misspelt key left at its default is that key's; a field that contradicts others
    once it is wrong (a number of layers) is the field's. Ids that are beyond the embedding no more
    when the first cause is undone, as defaults of another model type, are that one's.
    """
    own = [*_of_repository(report)]
    if found:
        gone = [one for one in own if _is_of_ids(one, report) and not _stands(one, report, after)]
        own = [one for one in own if one not in gone]
        places = {*found[0].findings, *(at for one in gone for at in one.findings)}
        found = (replace(found[0], findings=tuple(sorted(places))), *found[1:])
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


def _is_of_ids(own: Diagnosis, report: Report | Unaudited) -> bool:
    return isinstance(report.findings[own.findings[0]], OfIds)


def _stands(own: Diagnosis, report: Report | Unaudited, after: Report | Unaudited) -> bool:
    finding = report.findings[own.findings[0]]
    key = (finding.kind, finding.names)
    return any((one.kind, one.names) == key for one in after.findings)


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
