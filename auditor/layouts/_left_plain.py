"""Modules that are stored plain while their like is packed, and lists of modules to leave plain.

Whether loading looks for packed weights there is what the config says: each layout reads that for
itself, in the syntax that its loaders have. For lists that are read in other ways by every version
of a loader, `unlisted` finds what no reading of the list covers.
"""

import re
from collections.abc import Collection, Mapping

from auditor.layouts.packing import Stored
from auditor.tensors import StoredTensor

_FLOATS = frozenset({None, "F32", "F16", "BF16"})  # None: only an index names it
_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")  # of a layer or an expert: a whole part of a name
# Of a decoder's layer: linears that every writer packs if it packs another one beside them.
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
    """Plain matrices of modules whose like is packed, by module.

    Alike are names that differ in their numbers: one class of module made them. So are projections
    of one attention, or of one feed-forward part. A layer without anything packed says nothing, for
    some tools carry one for drafting along, which loading leaves out; `whole_layers` counts it all
    the same, where the writer stores what it has loaded.
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
    # Of 45,000 names those are few, and numbers are looked for in them alone.
    like = frozenset(module for module in packed if module.endswith(ends))
    alike = {_NUMBER.sub("N", module) for module in like}
    around = {module.rpartition(".")[0] for module in like if _is_projection(module)}
    found = {
        module: weight
        for module, weight in plain.items()
        if module not in like
        and (
            _NUMBER.sub("N", module) in alike
            or (_is_projection(module) and module.rpartition(".")[0] in around)
        )
    }
    layers = set(map(_layer, packed)) if found and not whole_layers else ()
    return {
        module: weight
        for module, weight in found.items()
        if whole_layers or _layer(module) in layers
    }


def _is_projection(module: str) -> bool:
    return module.rpartition(".")[2] in _PROJECTIONS


def _is_matrix(shape: tuple[int, ...] | None) -> bool:
    return shape is None or len(shape) == _MATRIX


def _layer(module: str) -> str:
    """`model.layers.3.mlp.experts.5` -> `model.layers.3`; "" for a name without a number."""
    found = _NUMBER.search(module)
    return module[: found.end()] if found else ""


def unlisted(plain: Mapping[str, StoredTensor], listed: frozenset[str]) -> tuple[StoredTensor, ...]:
    """Those that nothing in a list of modules to leave plain may be meant for.

    Whatever may be meant for one counts as said: a part of its name, or of its number's on. None
    where the list is too long to be matched.
    """
    characters = sum(len(item.name) for item in plain.values())
    if len(listed) > _LISTED or characters * len(listed) > _COMPARED:
        return ()
    tails = tuple({_tail(said) for said in listed})
    return tuple(item for item in plain.values() if not any(tail in item.name for tail in tails))


def _tail(said: str) -> str:
    """`language_model.model.layers.1.mlp` -> `layers.1.mlp`: what is before it is often renamed.

    A pattern that is not a plain name may mean any module: the empty tail is part of every name.
    """
    if not re.fullmatch(r"[\w.]+", said):
        return ""
    numbered = _NUMBERED.search(said)
    return said[numbered.start() :] if numbered else said
