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
_NUMBERED = re.compile(r"\b\w+\.[0-9]")
_MATRIX = 2  # axes
_LISTED = 20_000  # modules to skip, in 30 ms; real lists have some hundreds
_COMPARED = 100_000_000  # characters of names times modules to skip, in 0.1 s


def plain_among_packed(
    stored: Stored, packed: Collection[str], *, whole_layers: bool = False
) -> Mapping[str, StoredTensor]:
    """Plain matrices of modules whose like is packed in another layer or expert, by module.

    Alike are names that differ in their numbers: one class of module made them. A layer without
    anything packed says nothing, for some tools carry one for drafting along, which loading leaves
    out; `whole_layers` counts it all the same, where the writer stores what it has loaded.
    """
    packed = frozenset(packed)
    alike = {_NUMBER.sub("N", module) for module in packed}
    layers = {_layer(module) for module in packed}
    return {
        module: weight
        for module, members in stored.modules.items()
        if (weight := members.get("weight")) is not None
        and module not in packed
        and _is_plain(weight)
        and _NUMBER.sub("N", module) in alike
        and (whole_layers or _layer(module) in layers)
    }


def _is_plain(weight: StoredTensor) -> bool:
    matrix = weight.shape is None or len(weight.shape) == _MATRIX
    return matrix and weight.dtype in _FLOATS


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
