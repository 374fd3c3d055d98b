"""Copies: findings about headers that numbers decide, heads and layers that are equal to others."""

import re
from collections.abc import Container, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from auditor.findings import (
    AddedBiasNotZero,
    AddedBiasZero,
    CopiedModules,
    DifferingDuplicate,
    Duplicate,
    EqualDuplicate,
    Finding,
    HeadEqualsEmbedding,
    RepeatedLayers,
    TiedCopyDiffers,
    Unexpected,
    by_name,
)
from auditor.tensors import StoredTensor, natural_key
from auditor.values.evidence import Evidence, is_matrix
from auditor.values.name_patterns import EMBEDDING, HEAD
from auditor.values.rules import limits

_TIED = "the config ties it"  # how the reason of such a duplicate begins
_MOST_EMBEDDINGS = 8  # each head is compared with each of them
_LAYER = re.compile(r"(.*?\.)?(\d+)\.(.+)")
_MOST_GROUPS = 8  # with equal samples: each layer is compared with each group
_SHOWN = 8  # pairs of layers
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
        name, is_same = tensor.name, None
        if {name, of} <= evidence.placed.keys():
            is_same = evidence.same(name, of) if name != of else evidence.same_in_all_files(name)
        groups.setdefault(is_same, []).append(at)
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


# --- layers that are equal, byte for byte, or of which a part is --------------------------------


def repeated_layers(evidence: Evidence) -> Iterator[RepeatedLayers | CopiedModules]:
    """Yield layers whose matrices are all equal, byte for byte, and parts of layers that are equal.

    Tensors with equal beginnings are compared completely.
    """
    layers: dict[tuple[str, str], dict[str, str]] = {}
    for name in evidence.placed:
        match = _LAYER.fullmatch(name)
        if match and is_matrix(evidence.tensor(name)):
            layers.setdefault((match[1] or "", match[2]), {})[match[3]] = name
    equal = _equal_matrices(evidence, layers)
    whole = [
        (first, other)
        for (first, other), suffixes in equal.items()
        if suffixes == layers[first].keys() == layers[other].keys()
    ]
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for first, other in whole:
        groups.setdefault(first, [first]).append(other)
    if groups:
        names = [
            name for group in groups.values() for one in group for name in layers[one].values()
        ]
        shown = tuple(tuple(map("".join, group)) for group in groups.values())
        yield RepeatedLayers(
            tensors=by_name(map(evidence.tensor, names)),
            layers=tuple(sorted(shown, key=lambda one: natural_key(one[0]))),
            reason="; ".join(f"{', '.join(group)} are equal, byte for byte" for group in shown[:8]),
        )
    parts = {
        (first, other): suffixes
        for (first, other), suffixes in equal.items()
        if (first, other) not in whole
        and not _began_as_copy(evidence, layers[first], layers[other], suffixes)
    }
    if parts:
        copied = {
            layers[place][suffix]: None
            for pair, suffixes in parts.items()
            for place in pair
            for suffix in suffixes
        }
        yield CopiedModules(
            tensors=by_name(map(evidence.tensor, copied)),
            layers=tuple((*map("".join, pair),) for pair in parts),
            reason="; ".join(
                f"{len(suffixes):,} matrices of {''.join(first)} are equal to those of "
                f"{''.join(other)}, byte for byte, expected numbers that differ"
                for (first, other), suffixes in list(parts.items())[:_SHOWN]
            ),
        )


def _began_as_copy(
    evidence: Evidence, first: Mapping[str, str], other: Mapping[str, str], equal: Container[str]
) -> bool:
    """Return whether most other matrices of two layers are correlated.

    Then a layer was copied, as models are made deeper, and a part of it was trained afterwards.
    """
    kin = [
        _correlation(evidence, first[suffix], other[suffix])
        for suffix in first.keys() & other.keys()
        if suffix not in equal
    ]
    return 2 * sum(one > limits.KIN for one in kin) > len(kin)


def _correlation(evidence: Evidence, first: str, other: str) -> float:
    """Return the correlation of the first numbers of two matrices; 0 if it is not known."""
    samples = evidence.sample(first), evidence.sample(other)
    if any(one is None or not np.isfinite(one).all() for one in samples):
        return 0.0
    a, b = (one.astype(np.float64) for one in samples if one is not None)
    if len(a) != len(b) or not a.std() or not b.std():
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _equal_matrices(
    evidence: Evidence, layers: dict[tuple[str, str], dict[str, str]]
) -> dict[tuple[tuple[str, str], tuple[str, str]], set[str]]:
    """Return pairs of layers with the names of their equal matrices, at least two of each pair.

    The first layer of a pair is the first one of all that are equal to it.
    """
    places_by_beginning: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for place in sorted(layers, key=lambda one: (one[0], int(one[1]))):
        for suffix, name in layers[place].items():
            start, tensor = evidence.beginning(name), evidence.tensor(name)
            if start is not None:
                key = (suffix, place[0], repr((tensor.dtype, tensor.shape, start)))
                places_by_beginning.setdefault(key, []).append(place)
    equal: dict[tuple[tuple[str, str], tuple[str, str]], set[str]] = {}
    for (suffix, *_), places in places_by_beginning.items():
        for group in _equal(evidence, places, layers, suffix):
            for other in group[1:]:
                equal.setdefault((group[0], other), set()).add(suffix)
    return {pair: names for pair, names in equal.items() if len(names) >= limits.LEAST_COPIED}


def _equal(
    evidence: Evidence,
    places: list[tuple[str, str]],
    layers: dict[tuple[str, str], dict[str, str]],
    suffix: str,
) -> Iterator[list[tuple[str, str]]]:
    """Yield groups of layers with an equal matrix, which is compared with a group's first."""
    groups: list[list[tuple[str, str]]] = []
    for place in places:
        for group in groups[:_MOST_GROUPS]:
            if evidence.same(layers[place][suffix], layers[group[0]][suffix]):
                group.append(place)
                break
        else:
            groups.append([place])
    yield from (group for group in groups if len(group) > 1)
