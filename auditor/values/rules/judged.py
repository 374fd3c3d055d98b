"""Findings about headers that numbers decide, and heads that are equal to an embedding."""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.findings import (
    AddedBiasNotZero,
    AddedBiasZero,
    DifferingDuplicate,
    Duplicate,
    EqualDuplicate,
    Finding,
    HeadEqualsEmbedding,
    TiedCopyDiffers,
    Unexpected,
    by_name,
)
from auditor.tensors import StoredTensor
from auditor.values.evidence import Evidence
from auditor.values.name_patterns import EMBEDDING, HEAD

_TIED = "the config ties it"  # how the reason of such a duplicate begins
_MOST_EMBEDDINGS = 8  # each head is compared with each of them
_BIAS = ".bias"
_WEIGHTS = ("weight", "qweight", "weight_packed", "weight_scale", "scales")

# --- copies -------------------------------------------------------------------------------------


def judged_duplicates(evidence: Evidence) -> Iterator[tuple[Duplicate, tuple[Finding, ...]]]:
    """Yield each `duplicate` finding that numbers decide, with the findings that replace it."""
    for finding in evidence.outcome.findings:
        if isinstance(finding, Duplicate) and not isinstance(finding, EqualDuplicate):
            parts = tuple(_judged(evidence, finding))
            if parts != (finding,):
                yield finding, parts


def _judged(evidence: Evidence, finding: Duplicate) -> Iterator[Finding]:
    groups: dict[bool | None, list[int]] = {}
    for at, (tensor, of) in enumerate(zip(finding.tensors, finding.of, strict=True)):
        groups.setdefault(_are_same(evidence, tensor.name, of), []).append(at)
    for is_same, places in groups.items():
        tensors = tuple(finding.tensors[at] for at in places)
        sources = tuple(finding.of[at] for at in places)
        in_files = all(one.name == of for one, of in zip(tensors, sources, strict=True))
        if is_same is False and in_files:
            reason = f"{finding.reason}; their bytes differ"
            yield DifferingDuplicate(tensors=tensors, of=sources, reason=reason)
        elif is_same is None or (is_same is False and not finding.reason.startswith(_TIED)):
            reason = finding.reason + _equal_bytes_clause(evidence, finding, places)
            yield Duplicate(tensors=tensors, of=sources, reason=reason, silent=finding.silent)
        elif is_same:
            size = sum(one.span.length for one in tensors if one.span)
            reason = f"both copies have the same bytes: {size:,} are stored twice"
            yield EqualDuplicate(tensors=tensors, of=sources, reason=reason, silent=finding.silent)
        else:
            reason = f"the config ties it to {sources[0]}, and their numbers differ"
            yield TiedCopyDiffers(tensors=tensors, of=sources, reason=reason)


def _are_same(evidence: Evidence, name: str, of: str) -> bool | None:
    """Return whether two tensors, or one tensor in several files, have the same bytes."""
    if not {name, of} <= evidence.placed.keys():
        return None
    return evidence.same(name, of) if name != of else evidence.same_in_all_files(name)


def _equal_bytes_clause(evidence: Evidence, finding: Duplicate, places: list[int]) -> str:
    """Return a clause with the number of equal sampled bytes of the copies; "" if not sampled."""
    pairs = [(finding.tensors[at].name, finding.of[at]) for at in places]
    if not evidence.sampled or any(not set(pair) <= evidence.placed.keys() for pair in pairs):
        return ""
    sizes = [evidence.compared(*pair) for pair in pairs]
    return f"; {sum(sizes):,} bytes of both were sampled, and are the same" if all(sizes) else ""


def heads_equal_to_embeddings(evidence: Evidence) -> Iterator[HeadEqualsEmbedding]:
    """Yield output heads with the same bytes as an embedding to which they are not tied."""
    judged = {
        name
        for finding in evidence.outcome.findings
        if isinstance(finding, Duplicate)
        for name in (*finding.names, *finding.of)
    }
    names = sorted(evidence.placed.keys() - judged)
    embeddings = [name for name in names if EMBEDDING.search(name)][:_MOST_EMBEDDINGS]
    for head in filter(HEAD.search, names):
        shape = evidence.tensor(head).shape
        alike = (name for name in embeddings if evidence.tensor(name).shape == shape)
        embedding = next((name for name in alike if evidence.same(head, name)), None)
        if embedding is not None:
            size = evidence.placed[head].span.length
            yield HeadEqualsEmbedding(
                tensors=(evidence.tensor(head),),
                of=(embedding,),
                reason=f"it has the same bytes as {embedding}, and the config does not tie them: "
                f"{size:,} bytes are stored twice",
            )


# --- biases of modules that have no bias in the architecture ------------------------------------


def judged_biases(evidence: Evidence) -> Iterator[tuple[Unexpected, tuple[Finding, ...]]]:
    """Yield each `unexpected` finding about added biases, with the findings that replace it."""
    for finding in evidence.outcome.findings:
        if not isinstance(finding, Unexpected) or finding.more:
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


def _replacements(evidence: Evidence, finding: Unexpected) -> Iterator[Finding]:
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
