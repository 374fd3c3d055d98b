"""The modules of known denoisers that the keys of a LoRA meet, by name and by input width.

Names of diffusers, of kohya (with _ for each dot) and of ComfyUI are compared with _ for each dot.
kohya's names of SDXL and both writers' names of Flux are those of the original models, which are
renamed as diffusers 0.42 renames them when it loads a LoRA.
"""

import re
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
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
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
    names = [name_in_diffusers(one.stored) for one in modules]
    met = {
        base: sum(
            known.get(name, _ABSENT) == one.inputs for one, name in zip(modules, names, strict=True)
        )
        for base in _BASES
        if (known := _widths(base))
    }
    base = max(met, key=lambda each: met[each])
    if not met[base]:
        return
    left = len(modules) - met[base]
    others = f"; {left:,} have another name or width" if left else ""
    yield f"{met[base]:,} of {len(modules):,} modules of a denoiser are in {base}{others}"
    own_prefix = "transformer." if _BASES[base][0] != "UNet2DConditionModel" else "unet."
    is_diffusers = names == [one.stored for one in modules]
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
    """Return the input width of each module of a base's denoiser; names with _ for each dot."""
    target, config = _BASES[base]
    tensors = expect_diffusers(Config(values=config), target).tensors
    return {
        one.name.removesuffix(".weight").replace(".", "_"): one.shape[1]
        for one in tensors
        if one.name.endswith(".weight") and len(one.shape) > 1
    }


# --- names of the original models -----------------------------------------------------------------

_BLOCK = re.compile(r"(input|output)_blocks_(\d{1,3})_([012])_(\w+)", re.ASCII)
_MIDDLE = re.compile(r"middle_block_([012])_(\w+)", re.ASCII)
_FLUX = re.compile(r"(double|single)_blocks_(\d{1,3})_(\w+)", re.ASCII)
_GROUPS = ("resnets", "attentions", "upsamplers")
_LAYERS_OF_BLOCK = 3  # layers_per_block of Stable Diffusion, and the sampler
# The original names of SDXL's modules outside blocks, and of those of a resnet.
_OUTSIDE_BLOCKS = MappingProxyType(
    {
        "input_blocks_0_0": "conv_in",
        "label_emb_0_0": "add_embedding_linear_1",
        "label_emb_0_2": "add_embedding_linear_2",
        "out_2": "conv_out",
        "time_embed_0": "time_embedding_linear_1",
        "time_embed_2": "time_embedding_linear_2",
    }
)
_OF_RESNET = MappingProxyType(
    {
        "emb_layers_1": "time_emb_proj",
        "in_layers_2": "conv1",
        "out_layers_3": "conv2",
        "skip_connection": "conv_shortcut",
    }
)
# Modules of Flux's blocks; of a fused one the first of those with its inputs.
_OF_FLUX = MappingProxyType(
    {
        "img_attn_proj": "attn_to_out_0",
        "img_attn_qkv": "attn_to_q",
        "img_mlp_0": "ff_net_0_proj",
        "img_mlp_2": "ff_net_2",
        "img_mod_lin": "norm1_linear",
        "linear1": "attn_to_q",
        "linear2": "proj_out",
        "modulation_lin": "norm_linear",
        "txt_attn_proj": "attn_to_add_out",
        "txt_attn_qkv": "attn_add_q_proj",
        "txt_mlp_0": "ff_context_net_0_proj",
        "txt_mlp_2": "ff_context_net_2",
        "txt_mod_lin": "norm1_context_linear",
    }
)


def name_in_diffusers(name: str) -> str:
    """Return diffusers' name of a module of SDXL or Flux, or another name as it is."""
    if block := _BLOCK.fullmatch(name):
        side, number, group, rest = block.groups()
        if side == "input" and number == "0":
            return name
        place, layer = divmod(int(number) - (side == "input"), _LAYERS_OF_BLOCK)
        if rest == "op":
            return f"down_blocks_{place}_downsamplers_0_conv"
        kind = _GROUPS[int(group)]
        inside = f"{kind}_{0 if kind == 'upsamplers' else layer}_{_OF_RESNET.get(rest, rest)}"
        return f"{'down' if side == 'input' else 'up'}_blocks_{place}_{inside}"
    if middle := _MIDDLE.fullmatch(name):
        inside = ("resnets_0", "attentions_0", "resnets_1")[int(middle[1])]
        return f"mid_block_{inside}_{_OF_RESNET.get(middle[2], middle[2])}"
    if flux := _FLUX.fullmatch(name):
        blocks = "transformer_blocks" if flux[1] == "double" else "single_transformer_blocks"
        return f"{blocks}_{flux[2]}_{_OF_FLUX.get(flux[3], flux[3])}"
    return _OUTSIDE_BLOCKS.get(name, name)
