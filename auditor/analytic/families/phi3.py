"""Phi 3 and 4, https://arxiv.org/abs/2404.14219: a Llama with fused projections."""

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    decoder_of,
    fused_mlp,
    head_dim,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

PHI3 = Family(
    model_type="phi3",
    taken_over=True,
    prefix="model",
    base="Phi3Model",
    keys=f"{KEYS} head_dim",
)


def fused_attention(c: Config) -> Module:
    D, H, width = c.dim("hidden_size"), c.dim("num_attention_heads"), head_dim(c)
    K = key_value_heads(c)
    return module(
        o_proj=Linear(H * width, D, bias=False),
        qkv_proj=Linear(D, (H + 2 * K) * width, bias=False),
    )


def block(c: Config) -> Module:
    return layer(c, self_attn=fused_attention(c), mlp=fused_mlp(c))


derived_defaults("Phi3Config")(_configs.key_value_heads)

register(PHI3, "Phi3", decoder_of(block), heads=HEADS[:3])

loads("phi3", LoadingFacts(rotary=True))
