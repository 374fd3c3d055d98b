"""Modules that a config says are plain, and modules that are plain although nothing says so."""

import re
from collections.abc import Iterable

from auditor.layouts.packing import Stored
from auditor.tensors import StoredTensor

_FLOATS = frozenset({"F16", "BF16", "F32"})
_NUMBERS = re.compile(r"(?<=\.)[0-9]+(?=\.)")
_NUMBERED = re.compile(r"\w+\.[0-9]")
_MATRIX = 2  # axes
_LISTED = 20_000  # modules to skip, in 30 ms; real lists have some hundreds
_COMPARED = 2_000_000  # names times modules to skip, in 0.1 s


def within(name: str, modules: frozenset[str]) -> bool:
    """Whether the tensor is one of the modules, or below it, by their full names.

    Loaders match in wider ways as well, which differ by version; all of them match this.
    """
    module = name
    while "." in module:
        module = module.rpartition(".")[0]
        if module in modules:
            return True
    return False


def odd_ones(
    stored: Stored, packed: Iterable[str], skipped: frozenset[str]
) -> tuple[StoredTensor, ...]:
    """Plain matrices of a kind that is packed in other layers, and that nothing says to skip.

    Of the same kind are names that differ in their numbers: one class of module made them.
    Whatever may be meant for a matrix counts as said: a part of its name, or of its number's on.
    """
    names = frozenset(packed)
    kinds = {_NUMBERS.sub("N", name) for name in names}
    plain = [
        weight
        for members in stored.modules.values()
        if (weight := members.get("weight")) is not None
        and weight.dtype in _FLOATS
        and len(weight.shape or ()) == _MATRIX
        and weight.name not in names
        and _NUMBERS.sub("N", weight.name) in kinds
    ]
    if len(skipped) > _LISTED or len(plain) * len(skipped) > _COMPARED:
        return ()
    tails = tuple({_tail(said) for said in skipped})
    return tuple(item for item in plain if not any(tail in item.name for tail in tails))


def _tail(said: str) -> str:
    """`language_model.model.layers.1.mlp` -> `layers.1.mlp`: what is before it is often renamed.

    A pattern that is not a plain name may mean any module: the empty tail is part of every name.
    """
    if not re.fullmatch(r"[\w.]+", said):
        return ""
    numbered = _NUMBERED.search(said)
    return said[numbered.start() :] if numbered else said
