"""The causes of level repository: each is a finding that already contains its fix."""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.findings import ConfigContradiction, OfIds, OfKeys, Severity, UnknownConfigKey
from auditor.report import Diagnosis, Report, Unaudited


def with_repository(
    diagnoses: tuple[Diagnosis, ...], report: Report | Unaudited, after: Report | Unaudited
) -> tuple[Diagnosis, ...]:
    """Return the causes of both levels, each fault under one cause.

    `after` is the report on the undone snapshot. A field that a misspelt key leaves at its default
    is a fault of the key; a contradiction between fields (a number of layers) is a fault of the
    wrong field. Ids beyond the embedding that disappear with the undoing belong to its cause.
    """
    own = [*_of_repository(report)]
    if diagnoses:
        closed = [one for one in own if _is_of_ids(one, report) and not _stands(one, report, after)]
        own = [one for one in own if one not in closed]
        places = {*diagnoses[0].findings, *(at for one in closed for at in one.findings)}
        diagnoses = (replace(diagnoses[0], findings=tuple(sorted(places))), *diagnoses[1:])
    merged: list[Diagnosis] = []
    for diagnosis in diagnoses:
        keys = {key for key, *_ in diagnosis.fields}
        same = [one for one in own if keys & config_keys_of(one, report)]
        claimed = {place for one in (*same, diagnosis) for place in one.findings}
        misspelt = next((one for one in same if one.cause == UnknownConfigKey.kind), None)
        joined = replace(
            misspelt or diagnosis,
            findings=tuple(sorted(claimed)),
            severity=diagnosis.severity,
        )
        own = [one for one in own if one not in same] + ([joined] if misspelt else [])
        merged += [] if misspelt else [joined]
    return (*merged, *own)


def _is_of_ids(own: Diagnosis, report: Report | Unaudited) -> bool:
    return isinstance(report.findings[own.findings[0]], OfIds)


def _stands(own: Diagnosis, report: Report | Unaudited, after: Report | Unaudited) -> bool:
    finding = report.findings[own.findings[0]]
    key = (finding.kind, finding.names)
    return any((one.kind, one.names) == key for one in after.findings)


def _of_repository(report: Report | Unaudited) -> Iterator[Diagnosis]:
    for place, finding in enumerate(report.findings):
        if isinstance(finding, OfKeys) and finding.severity is not Severity.INFO:
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
    """Return the config keys of a contradiction or a misspelt key; empty for other findings."""
    finding = report.findings[own.findings[0]]
    if not isinstance(finding, ConfigContradiction | UnknownConfigKey):
        return frozenset()
    return frozenset(key for _, key, _ in finding.says)
