"""Gemma 4, with an optional vision tower and an optional audio tower."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Buffer,
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
from auditor.analytic.dims import Dim
from auditor.analytic.families._decoder import NORMS, head_dim, layer
from auditor.analytic.families._gemma4_text import TEXT, text_model
from auditor.analytic.families._vlm import lm_head
from auditor.analytic.family import LoadingFacts, loads
from auditor.errors import CheckpointError

GEMMA4 = Family(
    model_type="gemma4",
    prefix="model",
    base="Gemma4Model",
    keys="vision_config audio_config tie_word_embeddings",
)


@architecture("Gemma4Model", GEMMA4)
def gemma4_model(c: Config) -> Module:
    D = c.nested("text_config", TEXT).dim("hidden_size")
    vision = c.nested("vision_config", VISION) if c.present("vision_config") else None
    audio = c.nested("audio_config", AUDIO) if c.present("audio_config") else None
    return module(
        vision_tower=vision_model(vision) if vision else None,
        language_model=text_model(c.nested("text_config", TEXT)),
        audio_tower=audio_model(audio) if audio else None,
        embed_vision=embedder(vision.dim("hidden_size"), D) if vision else None,
        embed_audio=embedder(audio.dim("output_proj_dims"), D) if audio else None,
    )


def embedder(inputs: Dim, outputs: Dim) -> Module:
    return module(embedding_projection=Linear(inputs, outputs, bias=False))


@architecture("Gemma4ForConditionalGeneration", GEMMA4)
def for_conditional_generation(c: Config) -> Module:
    tied = "model.language_model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    head = lm_head(c.nested("text_config", TEXT), tied=tied)
    return module(model=gemma4_model(c), lm_head=head)


loads(
    "gemma4",
    LoadingFacts(
        inside=(
            ("vision_tower", "vision_config", "gemma4_vision"),
            ("language_model", "text_config", "gemma4_text"),
        ),
    ),
)


# --- Gemma 4's vision tower -----------------------------------------------------------------------

# Its linear layers may store bounds for clipping.

VISION = Family(
    model_type="gemma4_vision",
    prefix="model",
    base="Gemma4VisionModel",
    keys=(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads head_dim patch_size position_embedding_size use_clipped_linears "
        "standardize"
    ),
    letters=MappingProxyType({"position_embedding_size": "L"}),
)


def clipped(c: Config, inputs: Dim, outputs: Dim) -> Module:
    bound = Buffer(()) if c.flag("use_clipped_linears") else None
    return module(
        linear=Linear(inputs, outputs, bias=False),
        input_min=bound,
        input_max=bound,
        output_min=bound,
        output_max=bound,
    )


@architecture("Gemma4VisionModel", VISION)
def vision_model(c: Config) -> Module:
    D, P = c.dim("hidden_size"), c.dim("patch_size")
    scale = Buffer((D,)) if c.flag("standardize") else None
    return module(
        patch_embedder=module(
            input_proj=Linear(3 * P * P, D, bias=False),
            position_embedding_table=Param((2, c.dim("position_embedding_size"), D)),
        ),
        encoder=module(layers=repeat(c.dim("num_hidden_layers"), partial(vision_layer, c))),
        std_bias=scale,
        std_scale=scale,
    )


def vision_layer(c: Config) -> Module:
    return layer(c, self_attn=vision_attention(c), norms=NORMS, mlp=vision_mlp(c))


def vision_attention(c: Config) -> Module:
    D, H, K = c.dim("hidden_size"), c.dim("num_attention_heads"), c.dim("num_key_value_heads")
    width = head_dim(c)
    return module(
        q_proj=clipped(c, D, H * width),
        k_proj=clipped(c, D, K * width),
        v_proj=clipped(c, D, K * width),
        o_proj=clipped(c, H * width, D),
        q_norm=RMSNorm(width),
        k_norm=RMSNorm(width),
    )


def vision_mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    gate, down = clipped(c, D, F), clipped(c, F, D)
    act = activation(c, "hidden_activation")
    return module(gate_proj=gate, up_proj=gate, down_proj=down, act_fn=act)


loads("gemma4_vision", LoadingFacts(rotary=True))


# --- Gemma 4's audio tower -----------------------------------------------------------------------

# https://arxiv.org/abs/2303.01037, with clipped linear layers.

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
        raise CheckpointError(f"{key} has {len(channels)} items, expected 2", key)
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
        act_fn=activation(c),
        depthwise_conv1d=Conv(D, D, (c.dim("conv_kernel_size"),), groups=D, bias=False),
        pre_layer_norm=RMSNorm(D),
        conv_norm=RMSNorm(D),
    )
