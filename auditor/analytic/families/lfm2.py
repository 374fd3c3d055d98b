"""LFM2, https://arxiv.org/abs/2511.23404: few layers have attention.

The others have a gated convolution over the last three tokens.
"""

from functools import partial
from types import MappingProxyType
from typing import Any

from auditor.analytic.blocks import (
    Buffer,
    Conv,
    Embedding,
    Linear,
    Module,
    Repeat,
    RMSNorm,
    Stack,
    module,
    stack,
)
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    experts,
    fused_experts,
    head_dim,
    layer_types,
    register,
    types_of_layers,
)
from auditor.analytic.family import LoadingFacts, loads

LFM2 = Family(
    model_type="lfm2",
    prefix="model",
    base="Lfm2Model",
    keys=(
        f"{KEYS} conv_bias conv_L_cache block_multiple_of block_ffn_dim_multiplier "
        "block_auto_adjust_ff_dim full_attn_idxs layer_types head_dim"
    ),
    older=MappingProxyType(
        {"tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"}
    ),
)


def short_convolution(c: Config) -> Module:
    D, bias = c.dim("hidden_size"), c.flag("conv_bias")
    return module(
        conv=Conv(D, D, kernel=(c.dim("conv_L_cache"),), groups=D, bias=bias),
        in_proj=Linear(D, 3 * D, bias=bias),
        out_proj=Linear(D, D, bias=bias),
    )


def attention(c: Config) -> Module:
    D, H, K = c.dim("hidden_size"), c.dim("num_attention_heads"), c.dim("num_key_value_heads")
    width = head_dim(c)
    return module(
        q_proj=Linear(D, H * width, bias=False),
        k_proj=Linear(D, K * width, bias=False),
        v_proj=Linear(D, K * width, bias=False),
        out_proj=Linear(H * width, D, bias=False),
        q_layernorm=RMSNorm(width),
        k_layernorm=RMSNorm(width),
    )


def gated_mlp(c: Config, width: Dim) -> Module:
    D = c.dim("hidden_size")
    return module(
        w1=Linear(D, width, bias=False),
        w3=Linear(D, width, bias=False),
        w2=Linear(width, D, bias=False),
    )


def adjusted_width(c: Config) -> Dim:
    """Return `intermediate_size`, or two thirds of it, scaled and rounded up to a multiple."""
    F = c.dim("intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim"):
        return F
    F = (2 * F).floor(3)
    if not c.present("block_ffn_dim_multiplier"):
        return F
    multiple, scaled = c.dim("block_multiple_of"), c.scaled("block_ffn_dim_multiplier", F)
    return multiple * scaled.ceil(multiple)


def decoder(c: Config, layers: Repeat | Stack) -> Module:
    D = c.dim("hidden_size")
    return module(
        embed_tokens=Embedding(c.dim("vocab_size"), D),
        layers=layers,
        embedding_norm=RMSNorm(D),
    )


def layer(c: Config, *, attends: bool, feed_forward: Module) -> Module:
    norm = RMSNorm(c.dim("hidden_size"))
    return module(
        self_attn=attention(c) if attends else None,
        conv=None if attends else short_convolution(c),
        feed_forward=feed_forward,
        operator_norm=norm,
        ffn_norm=norm,
    )


def lfm2_model(c: Config) -> Module:
    attending = c.integers("full_attn_idxs") if c.present("full_attn_idxs") else None
    types = layer_types(
        c, lambda n: "full_attention" if attending is None or n in attending else "conv"
    )

    def block(attends: bool) -> Module:  # noqa: FBT001 - the only difference of layers
        return layer(c, attends=attends, feed_forward=gated_mlp(c, adjusted_width(c)))

    return decoder(c, stack(c.dim("num_hidden_layers"), lambda n: types[n] != "conv", block))


@derived_defaults("Lfm2Config", "Lfm2MoeConfig")
def from_older_keys(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set keys from their older names."""
    for older, key in (
        ("tie_embedding", "tie_word_embeddings"),
        ("block_ff_dim", "intermediate_size"),
    ):
        if older in others and key in config.kind.fields:
            config.set(key, others.pop(older))


register(LFM2, "Lfm2", lfm2_model, heads=HEADS[:1])

loads("lfm2", LoadingFacts(rotary=True))


# --- LFM2 with experts ----------------------------------------------------------------------------

# https://arxiv.org/abs/2511.23404, in all but the first layers.

LFM2_MOE = Family(
    model_type="lfm2_moe",
    prefix="model",
    base="Lfm2MoeModel",
    keys=(
        f"{KEYS} moe_intermediate_size conv_bias conv_L_cache num_dense_layers num_experts "
        "num_experts_per_tok use_expert_bias head_dim"
    ),
    older=MappingProxyType({"tie_embedding": "tie_word_embeddings"}),
)


def sparse_mlp(c: Config) -> Module:
    """Return experts and a router; `expert_bias` balances the experts and gets no gradient."""
    E = c.dim("num_experts")
    return module(
        experts=experts(c, E, partial(gated_mlp, c, c.dim("moe_intermediate_size"))),
        gate=Linear(c.dim("hidden_size"), E, bias=False),
        expert_bias=Buffer((E,)) if c.flag("use_expert_bias") else None,
    )


def lfm2_moe_model(c: Config) -> Module:
    count, dense_layers = c.dim("num_hidden_layers"), c.integer("num_dense_layers")
    types = types_of_layers(c) if count.value > 0 else ()

    def block(kind: tuple[bool, bool]) -> Module:
        attends, dense = kind
        mlp = gated_mlp(c, c.dim("intermediate_size")) if dense else sparse_mlp(c)
        return layer(c, attends=attends, feed_forward=mlp)

    return decoder(c, stack(count, lambda n: (types[n] != "conv", n < dense_layers), block))


register(LFM2_MOE, "Lfm2Moe", lfm2_moe_model, heads=HEADS[:1])

loads("lfm2_moe", LoadingFacts(rules=fused_experts("w1", "w3", "w2", "feed_forward.experts")))
