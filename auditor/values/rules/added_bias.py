"""Stored biases of modules that have no bias in the architecture."""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.findings import (
    AddedBiasNotZero,
    AddedBiasZero,
    Finding,
    OfStored,
    Unexpected,
    by_name,
)
from auditor.tensors import StoredTensor
from auditor.values.evidence import Evidence

_BIAS = ".bias"
_WEIGHTS = ("weight", "qweight", "weight_packed", "weight_scale", "scales")


def judged_biases(evidence: Evidence) -> Iterator[tuple[OfStored, tuple[Finding, ...]]]:
    """Yield each `unexpected` finding about added biases, with the findings that replace it."""
    for finding in evidence.outcome.findings:
        if not Unexpected.describes(finding) or finding.more:
            continue
        replacements = tuple(_replacements(evidence, finding))
        if replacements and replacements != (finding,):
            yield finding, replacements


def _is_added(evidence: Evidence, name: str) -> bool:
    """Return whether a tensor is the bias of a module whose weight is expected."""
    if not name.endswith(_BIAS):
        return False
    weights = {f"{name.removesuffix(_BIAS)}.{weight}" for weight in _WEIGHTS}
    return bool((weights & evidence.placed.keys()) - evidence.unexpected)


def _replacements(evidence: Evidence, finding: OfStored) -> Iterator[Finding]:
    tensors_by_result: dict[bool | None, list[StoredTensor]] = {}  # whether the biases are zero
    for tensor in finding.tensors:
        is_zero = evidence.is_zero(tensor.name) if _is_added(evidence, tensor.name) else None
        tensors_by_result.setdefault(is_zero, []).append(tensor)
    if tensors := tensors_by_result.get(True):
        reason = "no class of this family has the bias, and each number of it is zero: harmless"
        yield AddedBiasZero(tensors=by_name(tensors), reason=reason)
    if tensors := tensors_by_result.get(False):
        reason = "no class of this family has the bias, and it is not zero: loading ignores it"
        yield AddedBiasNotZero(tensors=by_name(tensors), reason=reason)
    if tensors := tensors_by_result.get(None):
        unjudged = len(tensors) == len(finding.tensors)
        yield finding if unjudged else replace(finding, tensors=by_name(tensors))
