"""Layers that are equal, byte for byte, and layers of which a part is."""

import re
from collections.abc import Container, Iterator, Mapping

import numpy as np

from auditor.findings import CopiedModules, RepeatedLayers, by_name
from auditor.tensors import natural_key
from auditor.values.evidence import Evidence, is_matrix
from auditor.values.rules import limits

_LAYER = re.compile(r"(.*?\.)?(\d+)\.(.+)")
_MOST_GROUPS = 8  # with equal samples: each layer is compared with each group
_SHOWN = 8  # pairs of layers


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
