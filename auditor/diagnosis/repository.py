"""The causes in companion files and components, taken from findings that contain their fix."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from auditor.containers.manifest import PIPELINE
from auditor.findings import (
    ConfigContradiction,
    Finding,
    MissingComponent,
    OfKeys,
    Severity,
    SpecialIdBeyondVocabulary,
    TokenBeyondEmbedding,
    UnknownConfigKey,
)
from auditor.messages import listed
from auditor.report import Diagnosis, Report, Unaudited

_ABOUT_IDS = {SpecialIdBeyondVocabulary.kind, TokenBeyondEmbedding.kind}
_SEVERAL = 2  # missing components; a single one needs no common cause


def with_repository(
    diagnoses: tuple[Diagnosis, ...], report: Report | Unaudited, after: Report | Unaudited
) -> tuple[Diagnosis, ...]:
    """Return the causes in tensors, config and companion files, each fault in only one cause.

    `after` is the report on the snapshot after all proposals. If a misspelt key leaves a field at
    its default, the cause is the misspelt key; if two fields contradict each other (a number of
    layers), the cause is the wrong field. Token ids beyond the embedding that disappear with an
    proposal belong to the proposal's cause.
    """
    own = [
        Diagnosis(
            cause=finding.kind,
            severity=finding.severity,
            level="repository",
            summary=finding.reason,
            fix=finding.fix,
            findings=(place,),
            evidence=finding.names,
        )
        for place, finding in enumerate(report.findings)
        if isinstance(finding, OfKeys) and finding.severity is not Severity.INFO
    ]
    found = report.findings
    if diagnoses:
        left = {(one.kind, one.names) for one in after.findings}
        ids = (place for one in own for place in one.findings if found[place].kind in _ABOUT_IDS)
        closed = {place for place in ids if (found[place].kind, found[place].names) not in left}
        own = [one for one in own if closed.isdisjoint(one.findings)]
        places = closed.union(diagnoses[0].findings)
        diagnoses = (replace(diagnoses[0], findings=tuple(sorted(places))), *diagnoses[1:])
    merged: list[Diagnosis] = []
    for diagnosis in diagnoses:
        keys = {key for key, *_ in diagnosis.fields}
        same = [one for one in own if keys & _config_keys_of(found[one.findings[0]])]
        claimed = {place for one in (*same, diagnosis) for place in one.findings}
        misspelt = next((one for one in same if one.cause == UnknownConfigKey.kind), None)
        joined = replace(
            misspelt or diagnosis,
            findings=tuple(sorted(claimed)),
            severity=diagnosis.severity,
            change=diagnosis.change,
            unwritten=diagnosis.unwritten,
        )
        own = [one for one in own if one not in same] + ([joined] if misspelt else [])
        merged += [] if misspelt else [joined]
    return (*merged, *own)


def _config_keys_of(finding: Finding) -> set[str]:
    """Return the config keys of a contradiction or a misspelt key; empty for other findings."""
    if ConfigContradiction.describes(finding) or UnknownConfigKey.describes(finding):
        return {key for _, key, _ in finding.says}
    return set()


def lost_components(
    findings: tuple[Finding, ...], parts: Iterable[Report | Unaudited]
) -> Iterator[Diagnosis]:
    """Yield one cause for a pipeline's missing components if only one component is stored."""
    missing = {at: one for at, one in enumerate(findings) if MissingComponent.describes(one)}
    stored = [part for part in parts if part.component and part.observed]
    files = {one.declared_in for one in missing.values()}
    if len(missing) < _SEVERAL or len(stored) != 1 or files != {PIPELINE}:
        return
    [part], file = stored, PIPELINE
    names = [name for one in missing.values() for name in one.folders]
    kind = f"{part.target}.from_pretrained(..., subfolder={part.component!r})"
    yield Diagnosis(
        cause="lost-part",
        severity=MissingComponent.severity,
        summary=f"only {part.component} was saved: {listed(names)} are declared by {file} "
        "and not stored",
        explains=f"all {len(names)} names",
        fix=f"load the base pipeline with this {part.component} ({part.component}={kind}), or save "
        "the whole pipeline and upload all its folders",
        findings=tuple(missing),
        evidence=(f"{part.component} is the only component with files",),
    )
