"""The modules of known denoisers that the keys of a LoRA meet, by name and by input width."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic import Config
from auditor.analytic.diffusion import expect_diffusers

Shape = tuple[int, ...] | None

_DOWN, _CROSS = "DownBlock2D", "CrossAttnDownBlock2D"
_UP, _CROSS_UP = "UpBlock2D", "CrossAttnUpBlock2D"
_SDXL = {
    "attention_head_dim": [5, 10, 20],
    "block_out_channels": [320, 640, 1280],
    "cross_attention_dim": 2048,
    "down_block_types": [_DOWN, _CROSS, _CROSS],
    "transformer_layers_per_block": [1, 2, 10],
    "up_block_types": [_CROSS_UP, _CROSS_UP, _UP],
    "use_linear_projection": True,
}
_SD3 = {"caption_projection_dim": 1536, "num_attention_heads": 24, "num_layers": 24}
# Base model -> the class of its denoiser, and the keys of its config that shape modules.
_BASES: Mapping[str, tuple[str, Mapping[str, object]]] = MappingProxyType(
    {
        "Stable Diffusion 1": ("UNet2DConditionModel", {"cross_attention_dim": 768}),
        "Stable Diffusion 2": (
            "UNet2DConditionModel",
            {
                "attention_head_dim": [5, 10, 20, 20],
                "cross_attention_dim": 1024,
                "use_linear_projection": True,
            },
        ),
        "SDXL": ("UNet2DConditionModel", _SDXL),
        "Flux.1": ("FluxTransformer2DModel", {"guidance_embeds": True}),
        "Stable Diffusion 3 medium": ("SD3Transformer2DModel", _SD3),
    }
)


_ABSENT = -1  # the width of a module that a base lacks


class _Module(NamedTuple):
    """A module that a LoRA changes."""

    prefix: str  # "unet.", "lora_unet_", ""
    name: str  # as it is, with dots replaced for kohya
    inputs: int | None


def lora_notes(first_matrices: Mapping[str, Shape]) -> Iterator[str]:
    """Yield a sentence about the base whose denoiser has most of a LoRA's modules, if any has.

    `first_matrices` has the name and shape of each module's first matrix: (rank, inputs, ...).
    """
    modules = [_parsed(name, shape) for name, shape in first_matrices.items()]
    modules = [one for one in modules if not one.name.startswith(("text_encoder", "lora_te"))]
    met = {
        base: sum(known.get(one.name, _ABSENT) == one.inputs for one in modules)
        for base in _BASES
        if (known := _widths(base, is_kohya=any(one.prefix == "lora_unet_" for one in modules)))
    }
    base = max(met, key=lambda each: met[each])
    if not met[base]:
        return
    left = len(modules) - met[base]
    others = f"; {left:,} have another name or width" if left else ""
    yield f"{met[base]:,} of {len(modules):,} modules of a denoiser are in {base}{others}"
    own_prefix = "transformer." if _BASES[base][0] != "UNet2DConditionModel" else "unet."
    if all(one.prefix == "" for one in modules):
        yield (
            "no name has a prefix: load_lora_weights of diffusers ignores them; it finds them as "
            f"{own_prefix}NAME"
        )


def _parsed(name: str, shape: Shape) -> _Module:
    prefix = next(
        (one for one in ("unet.", "transformer.", "lora_unet_") if name.startswith(one)), ""
    )
    module = name.removeprefix(prefix).partition(".lora")[0]
    return _Module(prefix, module, shape[1] if shape and len(shape) > 1 else None)


@cache
def _widths(base: str, *, is_kohya: bool) -> Mapping[str, int]:
    """Return the input width of each module of a base's denoiser; names with _ as in kohya."""
    target, config = _BASES[base]
    tensors = expect_diffusers(Config(values=config), target).tensors
    names = {
        one.name.removesuffix(".weight"): one.shape[1]
        for one in tensors
        if one.name.endswith(".weight") and len(one.shape) > 1
    }
    return {name.replace(".", "_"): width for name, width in names.items()} if is_kohya else names
