"""Tensors that should have the same numbers, and layers that should not."""

import re
from collections.abc import Iterator
from hashlib import blake2b

from auditor.findings import (
    DifferingDuplicate,
    Duplicate,
    EqualDuplicate,
    Finding,
    HeadEqualsEmbedding,
    RepeatedLayers,
    TiedCopyDiffers,
    by_name,
)
from auditor.tensors import Span, natural_key
from auditor.values.evidence import SAMPLE, Evidence, is_matrix
from auditor.values.name_patterns import EMBEDDING, HEAD

_LAYER = re.compile(r"(.*?\.)?(\d+)\.(.+)")
_TIED = "the config ties it"  # how the reason of such a duplicate begins
_MOST_GROUPS = 8  # with equal samples: each layer is compared with each group
_MOST_EMBEDDINGS = 8  # each head is compared with each of them
_LEAST_MATRICES = 2  # of a layer: heads that start as copies of each other have one


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


def _equal_bytes_clause(evidence: Evidence, finding: Duplicate, places: list[int]) -> str:
    """Return a clause with the number of equal sampled bytes of the copies; "" if not sampled."""
    pairs = [(finding.tensors[at].name, finding.of[at]) for at in places]
    if not evidence.sampled or any(not set(pair) <= evidence.placed.keys() for pair in pairs):
        return ""
    sizes = [evidence.compared(*pair) for pair in pairs]
    return f"; {sum(sizes):,} bytes of both were sampled, and are the same" if all(sizes) else ""


def repeated_layers(evidence: Evidence) -> Iterator[RepeatedLayers]:
    """Yield layers whose matrices are all equal, byte for byte.

    Layers with equal samples of each tensor are compared completely.
    """
    layers: dict[tuple[str, str], dict[str, str]] = {}
    for name in evidence.placed:
        match = _LAYER.fullmatch(name)
        if match and is_matrix(evidence.tensor(name)):
            layers.setdefault((match[1] or "", match[2]), {})[match[3]] = name
    places_by_sample: dict[object, list[tuple[str, str]]] = {}
    for place, members in layers.items():
        if key := _sampled(evidence, members):
            places_by_sample.setdefault((place[0], key), []).append(place)
    groups = [
        group
        for places in places_by_sample.values()
        for group in _equal(evidence, sorted(places, key=lambda one: int(one[1])), layers)
    ]
    if groups:
        names = [name for group in groups for place in group for name in layers[place].values()]
        shown = tuple(tuple(f"{start}{number}" for start, number in group) for group in groups)
        yield RepeatedLayers(
            tensors=by_name(map(evidence.tensor, names)),
            layers=tuple(sorted(shown, key=lambda one: natural_key(one[0]))),
            reason="; ".join(f"{', '.join(group)} are equal, byte for byte" for group in shown[:8]),
        )


def _sampled(evidence: Evidence, members: dict[str, str]) -> tuple[object, ...]:
    """Return a key of the layer's matrices, from their first bytes; () if too few of them vary."""
    key: list[object] = []
    varied = 0
    for suffix, name in sorted(members.items()):
        placed = evidence.placed[name]
        data = evidence.bytes.read(placed, Span(0, min(SAMPLE, placed.span.length)))
        if data is None:
            return ()
        varied += bool(len(data) and (data != data[0]).any())
        key.append((suffix, placed.tensor.dtype, placed.tensor.shape, blake2b(data.data).digest()))
    return tuple(key) if varied >= _LEAST_MATRICES else ()


def _equal(
    evidence: Evidence,
    places: list[tuple[str, str]],
    layers: dict[tuple[str, str], dict[str, str]],
) -> Iterator[list[tuple[str, str]]]:
    """Yield groups of equal layers; a layer is compared with the first layer of a group."""
    groups: list[list[tuple[str, str]]] = []
    for place in places:
        for group in groups[:_MOST_GROUPS]:
            first = layers[group[0]]
            if all(evidence.same(name, first[key]) for key, name in layers[place].items()):
                group.append(place)
                break
        else:
            groups.append([place])
    yield from (group for group in groups if len(group) > 1)
