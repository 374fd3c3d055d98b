"""The names under which weights are saved and looked for, and those of their variants. Pure.

`from_pretrained(..., variant="fp16")` of transformers and of diffusers asks for
`model.fp16.safetensors`, or for `model.safetensors.index.fp16.json` and its shards.
"""

import re
from collections.abc import Collection, Iterable

from msgspec import Struct

from auditor.errors import UsageError
from auditor.messages import quoted

# In the order in which they are looked for: safetensors first, transformers' names first.
_WEIGHTS = (
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin",
)
_INDEX = ".index.json"

_STEM = r"(?:diffusion_)?(?:pytorch_)?model"
_SHARD = r"-\d{5}-of-\d{5}"
_VARIANT = re.compile(
    rf"(?P<stem>{_STEM})(?:"
    rf"\.(?P<one>\w+)(?:{_SHARD})?\.(?:safetensors|bin)"  # model.fp16.safetensors, and shards
    rf"|{_SHARD}\.(?P<other>\w+)\.(?:safetensors|bin)"  # model-00001-of-00002.fp16.safetensors
    rf"|\.(?:safetensors|bin)\.index\.(?P<index>\w+)\.json)",
    re.ASCII,
)


class FoundWeights(Struct, frozen=True, kw_only=True):
    """The weights of one folder: never both a file and an index."""

    weights: str | None = None
    index: str | None = None


def standard_weights(names: Collection[str], variant: str | None = None) -> FoundWeights | None:
    """What is loaded of the names in one folder; None: nothing of that variant is there."""
    for weights in _WEIGHTS:
        one, index = _varied(weights, variant), _varied(f"{weights}{_INDEX}", variant)
        if one in names:
            return FoundWeights(weights=one)
        if index in names:
            return FoundWeights(index=index)
    return None


def variants(names: Iterable[str]) -> tuple[str, ...]:
    """The variants that can be asked for among the names in one folder, sorted."""
    found = set(names)
    every = {variant for name in found if (variant := variant_of(name))}
    return tuple(sorted(variant for variant in every if standard_weights(found, variant)))


def variant_of(path: str) -> str | None:
    """`fp16` of `unet/diffusion_pytorch_model.fp16.safetensors`; None: it is of no variant."""
    match = _VARIANT.fullmatch(path.rpartition("/")[2])
    return match and (match["one"] or match["other"] or match["index"])


def dtype_of(variant: str) -> str | None:
    """The dtype that a variant's name stands for, as safetensors has it; None: it names none."""
    return {"fp16": "F16", "bf16": "BF16", "fp32": "F32"}.get(variant)


def checked_variant(variant: str) -> str:
    """The variant; UsageError for what can be none."""
    if not re.fullmatch(r"\w{1,64}", variant, re.ASCII):
        raise UsageError(f"{quoted(variant)} is not a variant: a variant is a word such as fp16")
    return variant


def _varied(name: str, variant: str | None) -> str:
    """The variant stands before the last ending: `model.fp16.safetensors`."""
    if variant is None:
        return name
    stem, _, ending = name.rpartition(".")
    return f"{stem}.{variant}.{ending}"
