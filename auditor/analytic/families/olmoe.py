"""OLMoE, https://arxiv.org/abs/2409.02060: 64 narrow experts, and eight of them a token."""

from auditor.analytic.blocks import Linear, Module, RMSNorm, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    gated_experts,
    head_dim,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.families._fused_experts import FUSED_EXPERTS
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import known_activation, scaled

OLMOE = Family(
    model_type="olmoe",
    prefix="model",
    base="OlmoeModel",
    keys=f"{KEYS} attention_bias num_experts num_experts_per_tok head_dim",
)


def olmoe_attention(c: Config) -> Module:
    """Norms over all heads at once, whose width head_dim does not change."""
    D, bias = c.dim("hidden_size"), c.flag("attention_bias")
    keys, width = D.floor(c.dim("num_attention_heads")) * key_value_heads(c), head_dim(c)
    return attention(
        c,
        width,
        qkv_bias=bias,
        out_bias=bias,
        scale=scaled(c, width),
        norms={"q_norm": RMSNorm(D), "k_norm": RMSNorm(keys)},
    )


def block(c: Config) -> Module:
    E = c.dim("num_experts")
    mlp = module(
        gate=Linear(c.dim("hidden_size"), E, bias=False),
        experts=gated_experts(c, E),
        act_fn=known_activation(c),
    )
    return layer(c, self_attn=olmoe_attention(c), mlp=mlp)


config_rules("OlmoeConfig", first=_configs.key_value_heads)


register(OLMOE, "Olmoe", decoder_of(block), heads=HEADS[:1])

loads("olmoe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))
