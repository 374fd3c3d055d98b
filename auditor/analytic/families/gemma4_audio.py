"""What Gemma 4 hears with: https://arxiv.org/abs/2303.01037, with clipped linear layers."""

from functools import partial

from auditor.analytic.blocks import (
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families.gemma4_vision import clipped
from auditor.analytic.parts import activation, depthwise, shares
from auditor.errors import CheckpointError

AUDIO = Family(
    model_type="gemma4_audio",
    prefix="model.audio_tower",
    base="Gemma4AudioModel",
    keys=(
        "hidden_size num_hidden_layers num_attention_heads subsampling_conv_channels "
        "conv_kernel_size use_clipped_linears output_proj_dims"
    ),
)


@architecture("Gemma4AudioModel", AUDIO)
def audio_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        subsample_conv_projection=subsampling(c),
        layers=repeat(c.dim("num_hidden_layers"), partial(audio_layer, c)),
        output_proj=Linear(D, c.dim("output_proj_dims")),
    )


def audio_layer(c: Config) -> Module:
    norm = RMSNorm(c.dim("hidden_size"))
    return module(
        feed_forward1=feed_forward(c),
        feed_forward2=feed_forward(c),
        self_attn=audio_attention(c),
        lconv1d=convolution(c),
        norm_pre_attn=norm,
        norm_post_attn=norm,
        norm_out=norm,
    )


def subsampling(c: Config) -> Module:
    channels = c.dims("subsampling_conv_channels")
    if len(channels) < 2:  # noqa: PLR2004 - one for each convolution
        key = f"{c.path}subsampling_conv_channels"
        raise CheckpointError(f"{key} has {len(channels)} items; 2 are needed", key)
    first, second = channels[:2]
    wide = first.floor(4) * second
    kernel = (3, 3)
    return module(
        layer0=module(conv=Conv(1, first, kernel, bias=False), norm=LayerNorm(first, bias=False)),
        layer1=module(
            conv=Conv(first, second, kernel, bias=False), norm=LayerNorm(second, bias=False)
        ),
        input_proj_linear=Linear(wide, c.dim("hidden_size"), bias=False),
    )


def audio_attention(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    width = D.floor(H)
    return module(
        heads=shares(c, D, H, even=False),
        q_proj=clipped(c, D, H * width),
        k_proj=clipped(c, D, H * width),
        v_proj=clipped(c, D, H * width),
        post=clipped(c, D, D),
        relative_k_proj=Linear(D, H * width, bias=False),
        per_dim_scale=Param((width,)),
    )


def feed_forward(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        ffw_layer_1=clipped(c, D, 4 * D),
        ffw_layer_2=clipped(c, 4 * D, D),
        act_fn=activation(c),
        pre_layer_norm=RMSNorm(D),
        post_layer_norm=RMSNorm(D),
    )


def convolution(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        linear_start=clipped(c, D, 2 * D),
        linear_end=clipped(c, D, D),
        groups=depthwise(c, D),
        act_fn=activation(c),
        depthwise_conv1d=Conv(D, D, (c.dim("conv_kernel_size"),), groups=D, bias=False),
        pre_layer_norm=RMSNorm(D),
        conv_norm=RMSNorm(D),
    )
