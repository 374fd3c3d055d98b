"""What rules find in numbers is added to an outcome, each alarm with its cause.

A finding that numbers judge (a duplicate, an added bias) is replaced by what becomes of it; no
count and no residual changes by that.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from inspect import cleandoc
from itertools import chain

from auditor.reconciler.findings import Finding, Severity, of_values
from auditor.reconciler.ignore import Ignore, split
from auditor.report import Diagnosis, Report, Unaudited, in_order
from auditor.values.evidence import Evidence
from auditor.values.rules.adapters import added_norms, no_op_adapter
from auditor.values.rules.added_bias import judged_biases
from auditor.values.rules.broken import all_zero, not_finite, padded_dtype
from auditor.values.rules.copies import judged_duplicates, repeated_layers
from auditor.values.rules.fresh_head import fresh_heads
from auditor.values.rules.untrained_rows import untrained_rows
from auditor.values.tokens import Tokens

_RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    not_finite,
    all_zero,
    no_op_adapter,
    fresh_heads,
    padded_dtype,
    repeated_layers,
)

_LEVEL = of_values.__name__


def with_findings(
    evidence: Evidence, tokens: Tokens, ignore: tuple[Ignore, ...], extra: Iterable[Finding] = ()
) -> Report | Unaudited:
    """The outcome with what its numbers tell; `extra` are findings that no number was read for."""
    judged = {id(old): new for old, new in _judged(evidence)}
    outcome = evidence.outcome
    kept = [judged.get(id(one), (one,)) for one in outcome.findings]
    new = list(chain(*(rule(evidence) for rule in _RULES), untrained_rows(evidence, tokens), extra))
    stand, ignored = split([*chain(*kept), *new], ignore)
    findings = in_order(stand)
    places = {id(one): at for at, one in enumerate(findings)}
    moved = (_moved(one, kept, places) for one in outcome.diagnosis)
    known = tuple(one for one in moved if one is not None)
    return replace(
        outcome,
        findings=findings,
        ignored=in_order((*outcome.ignored, *ignored)),
        diagnosis=(*known, *_causes(findings, {at for one in known for at in one.findings})),
        notes=(*outcome.notes, *added_norms(evidence)),
    )


def _judged(evidence: Evidence) -> Iterator[tuple[Finding, tuple[Finding, ...]]]:
    yield from judged_duplicates(evidence)
    yield from judged_biases(evidence)


def _moved(
    one: Diagnosis, kept: list[tuple[Finding, ...]], places: Mapping[int, int]
) -> Diagnosis | None:
    """The diagnosis with its findings' new places; None where all that it explains is harmless."""
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
