"""The modules of known denoisers that the keys of a LoRA meet, by name and by input width.

Names of diffusers, of kohya (with _ for each dot) and of ComfyUI are compared with _ for each dot.
kohya's names of SDXL and both writers' names of Flux are those of the original models.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from auditor.analytic import ExpectedTensor
from auditor.analytic.diffusion.original_models import ORIGINAL_MODELS, denoiser, in_diffusers

Shape = tuple[int, ...] | None

_UNET = "UNet2DConditionModel"
# The beginnings of the names of a transformer's blocks.
_BLOCKS = (
    *("double_blocks", "joint_blocks", "single_blocks"),
    *("single_transformer_blocks", "transformer_blocks"),
)
_ABSENT = -1  # the width of a module that a base lacks


class _Module(NamedTuple):
    """A module that a LoRA changes."""

    prefix: str  # "unet.", "lora_unet_", ""
    stored: str  # its name with _ for each dot
    inputs: int | None


def lora_notes(first_matrices: Mapping[str, Shape]) -> Iterator[str]:
    """Yield a sentence about the base whose denoiser has most of a LoRA's modules, if any has.

    `first_matrices` has the name and shape of each module's first matrix: (rank, inputs, ...).
    """
    modules = [
        _parsed(name, shape)
        for name, shape in first_matrices.items()
        if not name.startswith(("text_encoder", "lora_te"))
    ]
    is_unet = not any(one.stored.startswith(_BLOCKS) for one in modules)
    met = {
        base: sum(known.get(one.stored, _ABSENT) == one.inputs for one in modules)
        for base, of in ORIGINAL_MODELS.items()
        if of.target and (of.target == _UNET) == is_unet
        if (known := {**_widths(base), **_original_widths(base)})
    }
    base = max(met, key=lambda each: met[each])
    if not met[base]:
        return
    left = len(modules) - met[base]
    others = f"; {left:,} have another name or width" if left else ""
    yield f"{met[base]:,} of {len(modules):,} modules of a denoiser are in {base}{others}"
    own_prefix = "unet." if is_unet else "transformer."
    is_diffusers = not any(one.stored in _original_widths(base) for one in modules)
    if is_diffusers and all(one.prefix == "" for one in modules):
        yield (
            "no name has a prefix: load_lora_weights of diffusers ignores them; it finds them as "
            f"{own_prefix}NAME"
        )


_PREFIXES = ("unet.", "transformer.", "lora_unet_", "diffusion_model.")


def _parsed(name: str, shape: Shape) -> _Module:
    prefix = next((one for one in _PREFIXES if name.startswith(one)), "")
    module = name.removeprefix(prefix).partition(".lora")[0].replace(".", "_")
    return _Module(prefix, module, shape[1] if shape and len(shape) > 1 else None)


@cache
def _widths(base: str) -> Mapping[str, int]:
    """Return the input width of each module of a base's denoiser, by diffusers' names."""
    return _by_module(in_diffusers(base))


@cache
def _original_widths(base: str) -> Mapping[str, int]:
    """Return the input widths by original names; names that diffusers also has are left out."""
    widths = _by_module(denoiser(base))
    return {name: width for name, width in widths.items() if name not in _widths(base)}


def _by_module(tensors: Iterable[ExpectedTensor]) -> Mapping[str, int]:
    return {
        one.name.removesuffix(".weight").replace(".", "_"): one.shape[1]
        for one in tensors
        if one.name.endswith(".weight") and len(one.shape) > 1
    }
