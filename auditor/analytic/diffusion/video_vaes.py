"""AutoencoderKLWan and AutoencoderKLQwenImage: VAEs of causal convolutions over frames."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from auditor.analytic.blocks import Block, Conv, Module, Param, module, sequential
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import (
    LibraryForm,
    counts_by_block,
    outside,
    require,
    size,
    widths,
)
from auditor.analytic.diffusion.layers import layers_of
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family

_MEAN: tuple[float, ...] = (-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508)
_MEAN += (0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921)
_STD: tuple[float, ...] = (2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743)
_STD += (3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160)
_BOTH: Mapping[str, Any] = MappingProxyType(
    {
        "base_dim": 96,
        "z_dim": 16,
        "dim_mult": [1, 2, 4, 4],
        "num_res_blocks": 2,
        "attn_scales": [],
        "temperal_downsample": [False, True, True],
        "dropout": 0.0,
        "latents_mean": [*_MEAN],
        "latents_std": [*_STD],
    }
)
_LETTERS = MappingProxyType({"base_dim": "W", "z_dim": "Z"})
WAN = Family(
    model_type="AutoencoderKLWan",
    prefix="",
    base="AutoencoderKLWan",
    letters=_LETTERS,
    own=MappingProxyType(
        {
            **_BOTH,
            "decoder_base_dim": None,
            "is_residual": False,
            "in_channels": 3,
            "out_channels": 3,
            "patch_size": None,
            "scale_factor_temporal": 4,
            "scale_factor_spatial": 8,
        }
    ),
)
QWEN_IMAGE = Family(
    model_type="AutoencoderKLQwenImage",
    prefix="",
    base="AutoencoderKLQwenImage",
    letters=_LETTERS,
    own=MappingProxyType({**_BOTH, "input_channels": 3}),
)
_CUBE, _POINT, _TIME = (3, 3, 3), (1, 1, 1), (3, 1, 1)


def _norm(width: Dim) -> Module:
    return module(gamma=Param((width, 1, 1, 1)))


def _residual(inputs: Dim, outputs: Dim) -> Module:
    differ = inputs.value != outputs.value
    return module(
        norm1=_norm(inputs),
        conv1=Conv(inputs, outputs, _CUBE),
        norm2=_norm(outputs),
        conv2=Conv(outputs, outputs, _CUBE),
        conv_shortcut=Conv(inputs, outputs, _POINT) if differ else None,
    )


def _residuals(inputs: Dim, outputs: Dim, layers: int) -> list[Module]:
    further = _residual(outputs, outputs)
    return [_residual(inputs, outputs), *[further] * (layers - 1)][:layers]


def _mid_block(width: Dim) -> Module:
    attention = module(
        norm=module(gamma=Param((width, 1, 1))),
        to_qkv=Conv(width, 3 * width, (1, 1)),
        proj=Conv(width, width, (1, 1)),
    )
    residual = _residual(width, width)
    return module(attentions=layers_of([attention]), resnets=layers_of([residual] * 2))


def _resample(width: Dim, outputs: Dim, times: Dim | None) -> Module:
    """Return a change of size; `times` is the width of the one over frames."""
    return module(
        resample=sequential(None, Conv(width, outputs, (3, 3))),
        time_conv=Conv(width, times, _TIME) if times else None,
    )


def _encoder(c: Config, images: Dim, over_time: list[bool]) -> Module:
    base, layers = size(c, "base_dim"), counts_by_block(c, "num_res_blocks", 1)[0]
    before, blocks = base, list[Module]()
    multiples = widths(c, "dim_mult")
    for i, multiple in enumerate(multiples):
        D = base * multiple
        resnets = _residuals(before, D, layers)
        change = None
        if i < len(multiples) - 1:
            change = _resample(D, D, D if over_time[i] else None)
        if _is_residual(c):
            blocks.append(module(resnets=layers_of(resnets), downsampler=change))
        else:
            blocks += [*resnets, change] if change else resnets
        before = D if layers or _is_residual(c) else before
    last = base * multiples[-1]
    return module(
        conv_in=Conv(images, base, _CUBE),
        down_blocks=layers_of(blocks),
        mid_block=_mid_block(last),
        norm_out=_norm(last),
        conv_out=Conv(last, 2 * size(c, "z_dim"), _CUBE),
    )


def _decoder(c: Config, base: Dim, images: Dim, over_time: list[bool]) -> Module:
    layers = counts_by_block(c, "num_res_blocks", 1)[0] + 1
    multiples = widths(c, "dim_mult")[::-1]
    first = base * multiples[0]
    before, blocks = first, list[Module]()
    is_residual = _is_residual(c)
    for i, multiple in enumerate(multiples):
        D = base * multiple
        inputs = before if is_residual or not i else before.floor(2)
        parts: dict[str, Block] = {"resnets": layers_of(_residuals(inputs, D, layers))}
        if i < len(multiples) - 1:
            change = _resample(D, D if is_residual else D.floor(2), 2 * D if over_time[i] else None)
            name, built = (
                ("upsampler", change) if is_residual else ("upsamplers", layers_of([change]))
            )
            parts[name] = built
        blocks.append(module(**parts))
        before = D
    return module(
        conv_in=Conv(size(c, "z_dim"), first, _CUBE),
        mid_block=_mid_block(first),
        up_blocks=layers_of(blocks),
        norm_out=_norm(before),
        conv_out=Conv(before, images, _CUBE),
    )


def _is_residual(c: Config) -> bool:
    return c.family is WAN and c.flag("is_residual")


def _over_time(c: Config) -> list[bool]:
    """Return for each change of size whether it also changes the number of frames."""
    value = c.attribute("temperal_downsample")
    needed = len(widths(c, "dim_mult")) - 1
    if not isinstance(value, list) or len(value) < needed:
        raise outside(c, "temperal_downsample")
    if not all(type(one) is bool for one in value):
        raise outside(c, "temperal_downsample")
    return value


def _vae(c: Config, images: Dim, outputs: Dim, decoder_base: Dim) -> Module:
    require(c, "attn_scales", [])
    Z, over_time = size(c, "z_dim"), _over_time(c)
    return module(
        encoder=_encoder(c, images, over_time),
        quant_conv=Conv(2 * Z, 2 * Z, _POINT),
        post_quant_conv=Conv(Z, Z, _POINT),
        decoder=_decoder(c, decoder_base, outputs, over_time[::-1]),
    )


def wan_vae(c: Config) -> Module:
    own = "decoder_base_dim" if c.present("decoder_base_dim") else "base_dim"
    return _vae(c, size(c, "in_channels"), size(c, "out_channels"), size(c, own))


def qwen_image_vae(c: Config) -> Module:
    images = size(c, "input_channels")
    return _vae(c, images, images, size(c, "base_dim"))


CLASSES = MappingProxyType(
    {
        "AutoencoderKLWan": LibraryForm(WAN, wan_vae),
        "AutoencoderKLQwenImage": LibraryForm(QWEN_IMAGE, qwen_image_vae),
    }
)
