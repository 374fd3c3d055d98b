"""Granite 3, a Llama with constant factors that no checkpoint stores."""

from auditor.analytic.blocks import Module, Unbuildable
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    gated_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

GRANITE = Family(
    model_type="granite",
    prefix="model",
    base="GraniteModel",
    keys=f"{KEYS} attention_bias mlp_bias head_dim",
)


def granite_attention(c: Config, *, scale: Unbuildable | None = None) -> Module:
    bias = c.flag("attention_bias")
    return attention(c, head_dim(c), qkv_bias=bias, out_bias=bias, scale=scale)


def block(c: Config) -> Module:
    mlp = gated_mlp(c, bias=c.flag("mlp_bias"))
    return layer(c, self_attn=granite_attention(c), mlp=mlp)


config_rules("GraniteConfig", "GraniteMoeConfig", first=_configs.key_value_heads)


register(GRANITE, "Granite", decoder_of(block), heads=HEADS[:1])

loads("granite", LoadingFacts(rotary=True))
