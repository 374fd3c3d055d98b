"""PixArtTransformer2DModel: PixArt-alpha and PixArt-Sigma."""

from types import MappingProxyType

from auditor.analytic.blocks import (
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    repeat,
    sequential,
)
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import LibraryForm, counts_by_block, outside, require, size
from auditor.analytic.diffusion.layers import time_embedding
from auditor.analytic.dims import Dim, dim
from auditor.analytic.family import Family

PIXART = Family(
    model_type="PixArtTransformer2DModel",
    prefix="",
    base="PixArtTransformer2DModel",
    letters=MappingProxyType({"caption_channels": "C"}),
    own=MappingProxyType(
        {
            "num_attention_heads": 16,
            "attention_head_dim": 72,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 28,
            "dropout": 0.0,
            "norm_num_groups": 32,
            "cross_attention_dim": 1152,
            "attention_bias": True,
            "sample_size": 128,
            "patch_size": 2,
            "activation_fn": "gelu-approximate",
            "num_embeds_ada_norm": 1000,
            "upcast_attention": False,
            "norm_type": "ada_norm_single",
            "norm_elementwise_affine": False,
            "norm_eps": 1e-6,
            "interpolation_scale": None,
            "use_additional_conditions": None,
            "caption_channels": None,
            "attention_type": "default",
        }
    ),
)
_TIMES = 256  # channels of the sinusoids of the time and of the image's size
_LARGE = 128  # the sample size from which on the image's size is a condition by default


def _attention(D: Dim, source: Dim, *, has_bias: bool) -> Module:  # noqa: N803
    return module(
        to_q=Linear(D, D, bias=has_bias),
        to_k=Linear(source, D, bias=has_bias),
        to_v=Linear(source, D, bias=has_bias),
        to_out=sequential(Linear(D, D)),
    )


def _layer(c: Config, D: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return a BasicTransformerBlock whose scales and shifts come from the table and the time."""
    has_bias = c.flag("attention_bias")
    norm = LayerNorm(D) if c.flag("norm_elementwise_affine") else None
    text = size(c, "cross_attention_dim") if c.present("cross_attention_dim") else None
    return module(
        scale_shift_table=Param((6, D)),
        norm1=norm,
        attn1=_attention(D, D, has_bias=has_bias),
        norm2=norm,
        attn2=_attention(D, text, has_bias=has_bias) if text else None,
        ff=module(net=sequential(module(proj=Linear(D, 4 * D)), None, Linear(4 * D, D))),
    )


def pixart(c: Config) -> Module:
    require(c, "activation_fn", "gelu-approximate", "gelu")
    require(c, "norm_type", "ada_norm_single")
    require(c, "attention_type", "default")
    if not c.present("num_embeds_ada_norm"):
        raise outside(c, "num_embeds_ada_norm")
    counts_by_block(c, "num_layers", 1)  # bounded
    D = size(c, "num_attention_heads") * size(c, "attention_head_dim")
    patch, images = size(c, "patch_size"), size(c, "in_channels")
    outputs = size(c, "out_channels") if c.present("out_channels") else images
    of_size = None
    stated = c.attribute("use_additional_conditions")
    if (
        c.integer("sample_size") == _LARGE
        if stated is None
        else c.flag("use_additional_conditions")
    ):
        of_size = time_embedding(dim(_TIMES), D.floor(3))
    texts = size(c, "caption_channels") if c.present("caption_channels") else None
    return module(
        scale_shift_table=Param((2, D)),
        pos_embed=module(proj=Conv(images, D, (patch, patch))),
        transformer_blocks=repeat(c.dim("num_layers"), lambda: _layer(c, D)),
        proj_out=Linear(D, patch * patch * outputs),
        adaln_single=module(
            emb=module(
                timestep_embedder=time_embedding(dim(_TIMES), D),
                resolution_embedder=of_size,
                aspect_ratio_embedder=of_size,
            ),
            linear=Linear(D, 6 * D),
        ),
        caption_projection=time_embedding(texts, D) if texts else None,
    )


CLASSES = MappingProxyType({"PixArtTransformer2DModel": LibraryForm(PIXART, pixart)})
