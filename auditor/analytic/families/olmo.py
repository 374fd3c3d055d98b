"""OLMo 2, https://arxiv.org/abs/2501.00656: norms after attention and feed-forward; and OLMoE."""

from auditor.analytic.blocks import Linear, Module, RMSNorm, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    FUSED_EXPERTS,
    HEADS,
    KEYS,
    attention,
    decoder_of,
    gated_experts,
    gated_mlp,
    head_dim,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

OLMO2 = Family(
    model_type="olmo2",
    prefix="model",
    base="Olmo2Model",
    keys=f"{KEYS} attention_bias head_dim",
)


NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


def olmo2_attention(c: Config) -> Module:
    """Return attention with norms over all query heads and all key heads at once."""
    bias, width = c.flag("attention_bias"), head_dim(c)
    return attention(
        c,
        width,
        qkv_bias=bias,
        out_bias=bias,
        norms={
            "q_norm": RMSNorm(c.dim("num_attention_heads") * width),
            "k_norm": RMSNorm(key_value_heads(c) * width),
        },
    )


def block(c: Config) -> Module:
    return layer(c, norms=NORMS, self_attn=olmo2_attention(c), mlp=gated_mlp(c))


derived_defaults("Olmo2Config", "OlmoeConfig")(_configs.key_value_heads)

register(OLMO2, "Olmo2", decoder_of(block), heads=HEADS[:2])

loads("olmo2", LoadingFacts(rotary=True))


# --- OLMoE ----------------------------------------------------------------------------------------

# https://arxiv.org/abs/2409.02060: 64 narrow experts; each token uses eight.

OLMOE = Family(
    model_type="olmoe",
    prefix="model",
    base="OlmoeModel",
    keys=f"{KEYS} attention_bias num_experts num_experts_per_tok head_dim",
)


def olmoe_attention(c: Config) -> Module:
    """Return attention with norms over all heads at once; head_dim is ignored."""
    D, bias = c.dim("hidden_size"), c.flag("attention_bias")
    keys, width = D.floor(c.dim("num_attention_heads")) * key_value_heads(c), head_dim(c)
    return attention(
        c,
        width,
        qkv_bias=bias,
        out_bias=bias,
        norms={"q_norm": RMSNorm(D), "k_norm": RMSNorm(keys)},
    )


def olmoe_block(c: Config) -> Module:
    E = c.dim("num_experts")
    mlp = module(
        gate=Linear(c.dim("hidden_size"), E, bias=False),
        experts=gated_experts(c, E),
    )
    return layer(c, self_attn=olmoe_attention(c), mlp=mlp)


register(OLMOE, "Olmoe", decoder_of(olmoe_block), heads=HEADS[:1])

loads("olmoe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))
