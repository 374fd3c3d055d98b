"""Modules that are stored plain among similar packed ones, and lists of modules to leave plain.

The config decides whether loading expects packed weights there; each layout reads it in the syntax
of its loaders. If versions of a loader read a list in different ways, `unlisted` finds the modules
that no reading of the list covers.
"""

import re
from collections.abc import Collection, Mapping

from auditor.layouts.packing import Stored
from auditor.tensors import StoredTensor

_FLOATS = frozenset({None, "F32", "F16", "BF16"})  # None if only an index names the tensor
_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")  # of a layer or expert: a full part of a name
# Linears of a decoder's layer: a writer that packs one of them packs all of them.
_PROJECTIONS = frozenset(f"{one}_proj" for one in ("q", "k", "v", "o", "gate", "up", "down"))
_NUMBERED = re.compile(r"\b\w+\.[0-9]")
_DIGITS = tuple("0123456789")
_WEIGHT = ".weight"
_MATRIX = 2  # axes
_LISTED = 20_000  # modules to skip, in 30 ms; real lists have some hundreds
_COMPARED = 100_000_000  # characters of names times modules to skip, in 0.1 s


def plain_among_packed(
    stored: Stored, packed: Collection[str], *, whole_layers: bool = False
) -> Mapping[str, StoredTensor]:
    """Plain matrices of modules that are similar to packed modules, by module.

    Modules are similar if their names differ only in numbers, because one class made them, or if
    they are projections of one attention or feed-forward block. A layer without any packed module
    does not count, because some tools copy a layer for drafting that loading ignores;
    `whole_layers` counts it, for writers that store only what they have loaded.
    """
    plain = {
        tensor.name.removesuffix(_WEIGHT): tensor
        for tensor in stored.tensors
        if tensor[1] in _FLOATS and tensor[0].endswith(_WEIGHT) and _is_matrix(tensor.shape)
    }
    lasts = {module.rpartition(".")[2] for module in plain}
    if not lasts.isdisjoint(_PROJECTIONS):
        lasts |= _PROJECTIONS
    ends = (*lasts, *(_DIGITS if any(map(str.isdecimal, lasts)) else ()))
    # These are few of 45,000 names, and only they are searched for numbers.
    like = frozenset(module for module in packed if module.endswith(ends))
    alike = {_NUMBER.sub("N", module) for module in like}
    around = {module.rpartition(".")[0] for module in like if _is_projection(module)}
    similar = {
        module: weight
        for module, weight in plain.items()
        if module not in like
        and (
            _NUMBER.sub("N", module) in alike
            or (_is_projection(module) and module.rpartition(".")[0] in around)
        )
    }
    layers = set(map(_layer, packed)) if similar and not whole_layers else ()
    return {
        module: weight
        for module, weight in similar.items()
        if whole_layers or _layer(module) in layers
    }


def _is_projection(module: str) -> bool:
    return module.rpartition(".")[2] in _PROJECTIONS


def _is_matrix(shape: tuple[int, ...] | None) -> bool:
    return shape is None or len(shape) == _MATRIX


def _layer(module: str) -> str:
    """Return `model.layers.3` for `model.layers.3.mlp.experts.5`; "" if the name has no number."""
    match = _NUMBER.search(module)
    return module[: match.end()] if match else ""


def unlisted(plain: Mapping[str, StoredTensor], listed: frozenset[str]) -> tuple[StoredTensor, ...]:
    """The plain weights that no entry in a list of modules to leave plain can mean.

    An entry can mean a module if it is a part of its name, or if the part from its number on is. No
    weight is returned if the list is too long to be matched.
    """
    characters = sum(len(item.name) for item in plain.values())
    if len(listed) > _LISTED or characters * len(listed) > _COMPARED:
        return ()
    tails = tuple({_tail(entry) for entry in listed})
    return tuple(item for item in plain.values() if not any(tail in item.name for tail in tails))


def _tail(entry: str) -> str:
    """Return `layers.1.mlp` for `language_model.model.layers.1.mlp`, whose start is often renamed.

    A pattern that is not a plain name may mean any module: its tail is "", a part of every name.
    """
    if not re.fullmatch(r"[\w.]+", entry):
        return ""
    numbered = _NUMBERED.search(entry)
    return entry[numbered.start() :] if numbered else entry
