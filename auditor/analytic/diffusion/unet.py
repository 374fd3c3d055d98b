"""UNet2DConditionModel and ControlNetModel of diffusers: Stable Diffusion 1, 2 and XL.

`attention_head_dim` is the number of heads, by a mistake that diffusers keeps for old configs.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.blocks import Conv, Embedding, LayerNorm, Linear, Module, Param, module
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import (
    LibraryForm,
    counts_by_block,
    flags_by_block,
    kinds_by_block,
    outside,
    require,
    size,
    widths,
    widths_by_block,
)
from auditor.analytic.diffusion.layers import (
    GroupNorm,
    Transformers,
    down_inputs,
    layers_of,
    resnet,
    sampler,
    time_embedding,
    up_inputs,
)
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family

_DOWN = "CrossAttnDownBlock2D"
_UP = "CrossAttnUpBlock2D"
_MID = "UNetMidBlock2DCrossAttn"
_PLAIN_MID = "UNetMidBlock2D"

_BOTH = MappingProxyType(
    {
        "in_channels": 4,
        "flip_sin_to_cos": True,
        "freq_shift": 0,
        "down_block_types": (_DOWN, _DOWN, _DOWN, "DownBlock2D"),
        "mid_block_type": _MID,
        "only_cross_attention": False,
        "block_out_channels": (320, 640, 1280, 1280),
        "layers_per_block": 2,
        "downsample_padding": 1,
        "mid_block_scale_factor": 1,
        "act_fn": "silu",
        "norm_num_groups": 32,
        "norm_eps": 1e-5,
        "cross_attention_dim": 1280,
        "transformer_layers_per_block": 1,
        "encoder_hid_dim": None,
        "encoder_hid_dim_type": None,
        "attention_head_dim": 8,
        "num_attention_heads": None,
        "use_linear_projection": False,
        "class_embed_type": None,
        "addition_embed_type": None,
        "addition_time_embed_dim": None,
        "num_class_embeds": None,
        "upcast_attention": False,
        "resnet_time_scale_shift": "default",
        "projection_class_embeddings_input_dim": None,
        "addition_embed_type_num_heads": 64,
    }
)
UNET = Family(
    model_type="UNet2DConditionModel",
    prefix="",
    base="UNet2DConditionModel",
    own=MappingProxyType(
        {
            **_BOTH,
            "sample_size": None,
            "out_channels": 4,
            "center_input_sample": False,
            "up_block_types": ("UpBlock2D", _UP, _UP, _UP),
            "dropout": 0.0,
            "reverse_transformer_layers_per_block": None,
            "dual_cross_attention": False,
            "resnet_skip_time_act": False,
            "resnet_out_scale_factor": 1.0,
            "time_embedding_type": "positional",
            "time_embedding_dim": None,
            "time_embedding_act_fn": None,
            "timestep_post_act": None,
            "time_cond_proj_dim": None,
            "conv_in_kernel": 3,
            "conv_out_kernel": 3,
            "attention_type": "default",
            "class_embeddings_concat": False,
            "mid_block_only_cross_attention": None,
            "cross_attention_norm": None,
        }
    ),
)
CONTROLNET = Family(
    model_type="ControlNetModel",
    prefix="",
    base="ControlNetModel",
    own=MappingProxyType(
        {
            **_BOTH,
            "conditioning_channels": 3,
            "controlnet_conditioning_channel_order": "rgb",
            "conditioning_embedding_out_channels": (16, 32, 96, 256),
            "global_pool_conditions": False,
        }
    ),
)


_OFF = (False,)


class _Blocks(NamedTuple):
    """The settings of the blocks, first to last of the way down."""

    channels: tuple[Dim, ...]
    layers: tuple[int, ...]
    transformers: tuple[Transformers, ...]
    time: Dim
    scale_shift: bool

    @classmethod
    def of(cls, c: Config, time: Dim) -> "_Blocks":
        require(c, "num_attention_heads", None)
        require(c, "resnet_time_scale_shift", "default", "scale_shift")
        require(c, "mid_block_type", _MID, _PLAIN_MID, None)
        if c.attribute("norm_num_groups") is None:
            raise outside(c, "norm_num_groups")
        channels = widths(c, "block_out_channels")
        count = len(channels)
        columns = (
            counts_by_block(c, "transformer_layers_per_block", count),
            widths_by_block(c, "attention_head_dim", count),
            widths_by_block(c, "cross_attention_dim", count),
            (c.flag("use_linear_projection"),) * count,
            flags_by_block(c, "only_cross_attention", count),
        )
        return cls(
            channels,
            counts_by_block(c, "layers_per_block", count),
            tuple(Transformers(*row) for row in zip(*columns, strict=True)),
            time,
            c.text("resnet_time_scale_shift") == "scale_shift",
        )

    def resnets(self, inputs: Sequence[Dim], outputs: Dim) -> list[Module]:
        build = partial(resnet, outputs=outputs, time=self.time, scale_shift=self.scale_shift)
        by_width = {width.value: build(width) for width in inputs}
        return [by_width[width.value] for width in inputs]

    def down(self, c: Config) -> list[Module]:
        count, blocks = len(self.channels), list[Module]()
        kinds = kinds_by_block(c, "down_block_types", count, frozenset({_DOWN, "DownBlock2D"}))
        for i, (kind, W) in enumerate(zip(kinds, self.channels, strict=True)):
            inputs = down_inputs(self.channels, self.layers, i)
            attentions = [self.transformers[i].of(W)] * len(inputs) if kind == _DOWN else None
            blocks.append(
                module(
                    attentions=layers_of(attentions) if attentions is not None else None,
                    resnets=layers_of(self.resnets(inputs, W)),
                    downsamplers=sampler(W) if i < count - 1 else None,
                )
            )
        return blocks

    def mid(self, c: Config) -> Module | None:
        """Return the block in the middle, whose attn1 never reads the text."""
        if c.attribute("mid_block_type") is None:
            return None
        W, resnets = self.channels[-1], 1
        attentions = None
        if c.text("mid_block_type") == _MID:
            attentions = layers_of([self.transformers[-1]._replace(only_cross=False).of(W)])
            resnets = 2
        return module(attentions=attentions, resnets=layers_of(self.resnets([W] * resnets, W)))

    def up(self, c: Config) -> list[Module]:
        """Return the blocks of the way up; each layer also reads an output of the way down."""
        count, blocks = len(self.channels), list[Module]()
        kinds = kinds_by_block(c, "up_block_types", count, frozenset({_UP, "UpBlock2D"}))
        for i, kind in enumerate(kinds):
            place = count - 1 - i
            W = self.channels[place]
            inputs = up_inputs(self.channels, self.layers, place)
            attentions = [self.transformers[place].of(W)] * len(inputs) if kind == _UP else None
            blocks.append(
                module(
                    attentions=layers_of(attentions) if attentions else None,
                    resnets=layers_of(self.resnets(inputs, W)),
                    upsamplers=sampler(W) if place else None,
                )
            )
        return blocks


def _encoder_projection(c: Config) -> Module | None:
    """Return the projection of the text's states to cross_attention_dim."""
    require(c, "encoder_hid_dim_type", "text_proj", None)
    if not c.present("encoder_hid_dim"):
        require(c, "encoder_hid_dim_type", None)
        return None
    return Linear(size(c, "encoder_hid_dim"), size(c, "cross_attention_dim"))


def _class_embedding(c: Config, inputs: Dim, time: Dim) -> Module | None:
    projected = "projection_class_embeddings_input_dim"
    match c.attribute("class_embed_type"):
        case None if c.present("num_class_embeds"):
            return Embedding(size(c, "num_class_embeds"), time)
        case None | "identity":
            return None
        case "timestep":
            return time_embedding(inputs, time)
        case "projection":
            return time_embedding(size(c, projected), time)
        case "simple_projection" if c.family is UNET:
            return Linear(size(c, projected), time)
    raise outside(c, "class_embed_type")


def _added_embedding(c: Config, time: Dim) -> Module | None:
    """Return the embedding of what SDXL (text_time) and DeepFloyd IF (text) add to the time."""
    match c.attribute("addition_embed_type"):
        case None:
            return None
        case "text_time":
            return time_embedding(size(c, "projection_class_embeddings_input_dim"), time)
        case "text":
            key = "encoder_hid_dim" if c.present("encoder_hid_dim") else "cross_attention_dim"
            D = size(c, key)
            pool = module(
                positional_embedding=Param((1, D)),
                k_proj=Linear(D, D),
                q_proj=Linear(D, D),
                v_proj=Linear(D, D),
            )
            return module(
                norm1=LayerNorm(D), pool=pool, proj=Linear(D, time), norm2=LayerNorm(time)
            )
    raise outside(c, "addition_embed_type")


def unet(c: Config) -> Module:
    require(c, "time_embedding_type", "positional")
    require(c, "attention_type", "default")
    require(c, "dual_cross_attention", *_OFF)
    require(c, "reverse_transformer_layers_per_block", None)
    W = widths(c, "block_out_channels")[0]
    time = c.positive("time_embedding_dim") if c.present("time_embedding_dim") else None
    time = time or 4 * W
    blocks = _Blocks.of(c, 2 * time if c.flag("class_embeddings_concat") else time)
    conditions = size(c, "time_cond_proj_dim") if c.present("time_cond_proj_dim") else None
    K_in, K_out = size(c, "conv_in_kernel"), size(c, "conv_out_kernel")
    return module(
        conv_in=Conv(size(c, "in_channels"), W, (K_in, K_in)),
        time_embedding=time_embedding(W, time, conditions),
        encoder_hid_proj=_encoder_projection(c),
        class_embedding=_class_embedding(c, W, time),
        add_embedding=_added_embedding(c, time),
        down_blocks=layers_of(blocks.down(c)),
        up_blocks=layers_of(blocks.up(c)),
        mid_block=blocks.mid(c),
        conv_norm_out=GroupNorm(W),
        conv_out=Conv(W, size(c, "out_channels"), (K_out, K_out)),
    )


def controlnet(c: Config) -> Module:
    """Return the way down and the middle of a UNet, each output with a convolution of its own."""
    require(c, "mid_block_type", _MID, _PLAIN_MID)
    if isinstance(c.attribute("layers_per_block"), list | tuple):
        raise outside(c, "layers_per_block")
    channels = widths(c, "block_out_channels")
    W, time = channels[0], 4 * channels[0]
    blocks = _Blocks.of(c, time)
    outputs = [W]
    for i, width in enumerate(channels):
        outputs += [width] * (blocks.layers[i] + (i < len(channels) - 1))
    return module(
        conv_in=Conv(size(c, "in_channels"), W, (3, 3)),
        time_embedding=time_embedding(W, time),
        encoder_hid_proj=_encoder_projection(c),
        class_embedding=_class_embedding(c, W, time),
        add_embedding=_added_embedding(c, time),
        controlnet_cond_embedding=_condition(c, W),
        down_blocks=layers_of(blocks.down(c)),
        controlnet_down_blocks=layers_of([Conv(one, one, (1, 1)) for one in outputs]),
        controlnet_mid_block=Conv(channels[-1], channels[-1], (1, 1)),
        mid_block=blocks.mid(c),
    )


def _condition(c: Config, outputs: Dim) -> Module:
    """Return the convolutions of the image that controls; every second one halves it."""
    sizes = widths(c, "conditioning_embedding_out_channels")
    blocks = list[Module]()
    for inputs, width in pairwise(sizes):
        blocks += [Conv(inputs, inputs, (3, 3)), Conv(inputs, width, (3, 3))]
    return module(
        conv_in=Conv(size(c, "conditioning_channels"), sizes[0], (3, 3)),
        blocks=layers_of(blocks),
        conv_out=Conv(sizes[-1], outputs, (3, 3)),
    )


CLASSES = MappingProxyType(
    {
        "UNet2DConditionModel": LibraryForm(UNET, unet),
        "ControlNetModel": LibraryForm(CONTROLNET, controlnet),
    }
)
