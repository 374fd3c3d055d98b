"""Modules that are alike but for the numbers in their names: the same place in other layers."""

import re
from collections.abc import Collection

from auditor.layouts.packing import Stored
from auditor.tensors import StoredTensor

_NUMBER = re.compile(r"[0-9]+")


def plain_among_packed(stored: Stored, packed: Collection[str]) -> dict[str, StoredTensor]:
    """Float weights of modules that are packed in another layer, in layers that hold packed ones.

    A layer that is plain throughout says nothing: some checkpoints carry one for drafting, which
    loading leaves out.
    """
    packed = frozenset(packed)
    alike = {_NUMBER.sub("0", module) for module in packed}
    layers = {_layer(module) for module in packed}
    return {
        module: weight
        for module, parts in stored.modules.items()
        if (weight := parts.get("weight")) is not None
        and module not in packed
        and _NUMBER.sub("0", module) in alike
        and _layer(module) in layers
    }


def _layer(module: str) -> str:
    """`model.layers.3.mlp.up_proj` -> `model.layers.3`; "" where there is no number."""
    found = _NUMBER.search(module)
    return module[: found.end()] if found else ""
