"""UNet2DModel of diffusers, which reads no text: DDPM, consistency models."""

from types import MappingProxyType

from auditor.analytic.blocks import Block, Conv, Embedding, Module, Param, module, sequential
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import (
    LibraryForm,
    counts_by_block,
    kinds_by_block,
    outside,
    require,
    size,
    widths,
)
from auditor.analytic.diffusion.layers import (
    GroupNorm,
    Ways,
    biased_attention,
    layers_of,
    resnet,
    sampler,
    time_embedding,
)
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family

UNET_2D = Family(
    model_type="UNet2DModel",
    prefix="",
    base="UNet2DModel",
    own=MappingProxyType(
        {
            "sample_size": None,
            "in_channels": 3,
            "out_channels": 3,
            "center_input_sample": False,
            "time_embedding_type": "positional",
            "time_embedding_dim": None,
            "freq_shift": 0,
            "flip_sin_to_cos": True,
            "down_block_types": ("DownBlock2D", *("AttnDownBlock2D",) * 3),
            "mid_block_type": "UNetMidBlock2D",
            "up_block_types": (*("AttnUpBlock2D",) * 3, "UpBlock2D"),
            "block_out_channels": (224, 448, 672, 896),
            "layers_per_block": 2,
            "mid_block_scale_factor": 1,
            "downsample_padding": 1,
            "downsample_type": "conv",
            "upsample_type": "conv",
            "dropout": 0.0,
            "act_fn": "silu",
            "attention_head_dim": 8,
            "norm_num_groups": 32,
            "attn_norm_num_groups": None,
            "norm_eps": 1e-5,
            "resnet_time_scale_shift": "default",
            "add_attention": True,
            "class_embed_type": None,
            "num_class_embeds": None,
            "num_train_timesteps": None,
        }
    ),
)
_KINDS = {
    "down": frozenset({"DownBlock2D", "AttnDownBlock2D", "ResnetDownsampleBlock2D"}),
    "up": frozenset({"UpBlock2D", "AttnUpBlock2D", "ResnetUpsampleBlock2D"}),
}


def unet_2d(c: Config) -> Module:
    require(c, "mid_block_type", "UNetMidBlock2D", None)
    require(c, "resnet_time_scale_shift", "default", "scale_shift")
    require(c, "class_embed_type", None, "timestep", "identity")
    for key in ("downsample_type", "upsample_type"):
        require(c, key, "conv", "resnet")
    if c.attribute("norm_num_groups") is None:
        raise outside(c, "norm_num_groups")
    channels = widths(c, "block_out_channels")
    count, W = len(channels), channels[0]
    time = size(c, "time_embedding_dim") if c.truth("time_embedding_dim") else 4 * W
    shifts = c.text("resnet_time_scale_shift") == "scale_shift"
    head = size(c, "attention_head_dim") if c.present("attention_head_dim") else None

    def layer(inputs: Dim, outputs: Dim) -> Module:
        return resnet(inputs, outputs, time, scale_shift=shifts)

    def parts(place: int, kind: str, inputs: list[Dim]) -> dict[str, Block | None]:
        D = channels[place]
        has_attention = kind.startswith("Attn")
        attentions = [biased_attention(D, head)] * len(inputs)
        return {
            "attentions": layers_of(attentions) if has_attention else None,
            "resnets": layers_of([layer(one, D) for one in inputs]),
        }

    def resample(place: int, kind: str) -> Module:
        key = "downsample_type" if "Down" in kind else "upsample_type"
        by_resnet = kind.startswith("Resnet") or (
            kind.startswith("Attn") and c.text(key) == "resnet"
        )
        D = channels[place]
        return sequential(layer(D, D)) if by_resnet else sampler(D)

    kinds = (kinds_by_block(c, f"{way}_block_types", count, _KINDS[way]) for way in _KINDS)
    ways = Ways(channels, counts_by_block(c, "layers_per_block", count), *kinds)
    time_proj, timestep = _time_projection(c, W)
    return module(
        conv_in=Conv(size(c, "in_channels"), W, (3, 3)),
        time_proj=time_proj,
        time_embedding=time_embedding(timestep, time),
        class_embedding=_class_embedding(c, timestep, time),
        **ways.built(parts, resample),
        mid_block=_mid_block(c, channels[-1], head, layer(channels[-1], channels[-1])),
        conv_norm_out=GroupNorm(W),
        conv_out=Conv(W, size(c, "out_channels"), (3, 3)),
    )


def _mid_block(c: Config, width: Dim, head: Dim | None, layer: Module) -> Module | None:
    """Return the block in the middle; a scaling and shifting one has a norm only if asked for."""
    if c.attribute("mid_block_type") is None:
        return None
    shifts = c.text("resnet_time_scale_shift") == "scale_shift"
    is_normed = c.present("attn_norm_num_groups") or not shifts
    attention = biased_attention(width, head, is_normed=is_normed)
    has_attention = c.flag("add_attention")
    return module(
        attentions=layers_of([attention]) if has_attention else None,
        resnets=layers_of([layer] * 2),
    )


def _time_projection(c: Config, width: Dim) -> tuple[Module | None, Dim]:
    """Return what is stored of the time's projection, and its width."""
    match c.attribute("time_embedding_type"):
        case "positional":
            return None, width
        case "fourier":
            return module(weight=Param((width,), is_frozen=True)), 2 * width
        case "learned":
            return Embedding(size(c, "num_train_timesteps"), width), width
    raise outside(c, "time_embedding_type")


def _class_embedding(c: Config, timestep: Dim, time: Dim) -> Module | None:
    if c.attribute("class_embed_type") == "timestep":
        return time_embedding(timestep, time)
    if c.attribute("class_embed_type") is None and c.present("num_class_embeds"):
        return Embedding(size(c, "num_class_embeds"), time)
    return None


CLASSES = MappingProxyType({"UNet2DModel": LibraryForm(UNET_2D, unet_2d)})
