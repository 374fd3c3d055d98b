"""Checks of an adapter's file that need no knowledge of its method.

In each method, modules of one kind (`layers.{}.self_attn.q_proj`) store the same tensors in every
layer that is adapted. The beginnings of their names are those of peft 0.21
(PEFT_TYPE_TO_PREFIX_MAPPING).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import prod

from auditor.analytic import ExpectedTensor
from auditor.findings import ConfigContradiction, Finding, Missing, OfKeys
from auditor.messages import listed, named, quoted
from auditor.tensors import StoredTensor

_IN_BASE = "base_model.model."
# Method -> how the names of its tensors begin, if no other method's begin so.
_BEGINNINGS = {
    name.upper(): f"{name}_"
    for name in (
        *(
            "boft",
            "c3a",
            "delora",
            "fourierft",
            "gralora",
            "hira",
            "hra",
            "ia3",
            "lokr",
            "miss",
            "oft",
        ),
        *("psoft", "randlora", "road", "shira", "tinylora", "unilora", "vblora", "waveft"),
    )
} | {"LOHA": "hada_", "LORA": "lora_", "VERA": "vera_lambda_"}
_SHARING = {"ADALORA": "LORA", "PVERA": "VERA", "XLORA": "LORA"}
_LEAF = re.compile(rf"(.+)\.((?:{'|'.join(_BEGINNINGS.values())})[^.]*(?:\.\w+)?)", re.ASCII)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_VARYING = "LOKR"  # a matrix is stored whole or as a product, depending on its rank


def method_findings(file: str, method: object, tensors: Iterable[StoredTensor]) -> Iterator[OfKeys]:
    """Yield a finding if all tensors are those of another method than the settings declare."""
    if not isinstance(method, str):
        return
    declared = _SHARING.get(method.upper(), method.upper())
    leaves = [match[2] for one in tensors if (match := _LEAF.fullmatch(one.name))]
    found = {
        known
        for leaf in leaves
        for known, beginning in _BEGINNINGS.items()
        if leaf.startswith(beginning)
    }
    if len(found) != 1 or declared in found or declared not in _BEGINNINGS:
        return
    [stored] = found
    yield ConfigContradiction(
        says=((file, "peft_type", quoted(method)),),
        reason=f"peft_type is {quoted(method)}, and the file stores {leaves[0]} and other tensors "
        f"of the method {stored}: PEFT does not load them",
        fix=f"set peft_type to {stored}, with the settings of the training",
    )


def half_modules(
    tensors: Iterable[StoredTensor], settings: Mapping[str, object], chosen: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield the tensors that other layers have; `chosen` are the paths of all adapted modules."""
    if str(settings.get("peft_type")).upper() == _VARYING and settings.get("rank_pattern"):
        return
    by_kind: dict[str, dict[str, dict[str, StoredTensor]]] = {}
    for one in tensors:
        if match := _LEAF.fullmatch(one.name):
            modules = by_kind.setdefault(_NUMBER.sub("{}", match[1]), {})
            modules.setdefault(match[1], {})[match[2]] = one
    for path in chosen:
        module = f"{_IN_BASE}{path}"
        kind = _NUMBER.sub("{}", module)
        if kind in by_kind:
            by_kind[kind].setdefault(module, {})
    lacking = [
        (module, leaf, one)
        for modules in by_kind.values()
        for leaf, one in {
            leaf: one for own in modules.values() for leaf, one in own.items()
        }.items()
        for module, own in modules.items()
        if leaf not in own
    ]
    if not lacking:
        return
    missing = tuple(
        ExpectedTensor(f"{module}.{leaf}", one.shape or (), prod(one.shape or ()))
        for module, leaf, one in sorted(lacking)
    )
    halves = listed(sorted({leaf for _, leaf, _ in lacking}))
    count = len({module for module, _, _ in lacking})
    what = "1 module" if count == 1 else f"{count:,} modules"
    yield Missing(
        tensors=missing,
        reason=f"{what} of the adapter lack {halves}, which modules of the same kind have "
        f"({named(lacking[0][2].name)})",
    )
