"""Biases that a writer added to modules that have none in the architecture."""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.findings import (
    AddedBiasNotZero,
    AddedBiasZero,
    Finding,
    Unexpected,
    by_name,
)
from auditor.tensors import StoredTensor
from auditor.values.evidence import Evidence

_BIAS = ".bias"
_WEIGHTS = ("weight", "qweight", "weight_packed", "weight_scale", "scales")


def judged_biases(evidence: Evidence) -> Iterator[tuple[Unexpected, tuple[Finding, ...]]]:
    """Each `unexpected` with biases of modules whose weight is expected, and what becomes of it.

    Where a diagnosis explains them already (a key of the config turns the bias on) it stays.
    """
    for finding in evidence.outcome.findings:
        if not isinstance(finding, Unexpected) or finding.more:
            continue
        zero, other, rest = _split(evidence, finding)
        if not (zero or other):
            continue
        yield finding, tuple(_findings(finding, zero, other, rest))


def _split(
    evidence: Evidence, finding: Unexpected
) -> tuple[list[StoredTensor], list[StoredTensor], list[StoredTensor]]:
    zero: list[StoredTensor] = []
    other: list[StoredTensor] = []
    rest: list[StoredTensor] = []
    for tensor in finding.tensors:
        known = evidence.is_zero(tensor.name) if _is_added(evidence, tensor.name) else None
        (rest if known is None else zero if known else other).append(tensor)
    return zero, other, rest


def _is_added(evidence: Evidence, name: str) -> bool:
    """A bias beside a weight that is expected."""
    if not name.endswith(_BIAS):
        return False
    beside = {f"{name.removesuffix(_BIAS)}.{weight}" for weight in _WEIGHTS}
    return bool((beside & evidence.placed.keys()) - evidence.unexpected)


def _findings(
    finding: Unexpected,
    zero: list[StoredTensor],
    other: list[StoredTensor],
    rest: list[StoredTensor],
) -> Iterator[Finding]:
    if zero:
        reason = "no class of this family has the bias, and each number of it is zero: harmless"
        yield AddedBiasZero(tensors=by_name(zero), reason=reason)
    if other:
        reason = "no class of this family has the bias, and it is not zero: loading leaves it out"
        yield AddedBiasNotZero(tensors=by_name(other), reason=reason)
    if rest:
        yield replace(finding, tensors=by_name(rest))
