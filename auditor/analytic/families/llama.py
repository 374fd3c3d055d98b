"""Llama 1 to 3, https://arxiv.org/abs/2302.13971, and models with equal tensors."""

from msgspec.structs import replace

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    KEYS,
    attention,
    decoder_of,
    gated_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

LLAMA = Family(
    model_type="llama",
    prefix="model",
    base="LlamaModel",
    keys=f"{KEYS} head_dim attention_bias mlp_bias",
)


def block(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    return layer(
        c,
        self_attn=attention(c, width, qkv_bias=bias, out_bias=bias, frequencies=True),
        mlp=gated_mlp(c, bias=c.flag("mlp_bias")),
    )


derived_defaults("LlamaConfig")(_configs.head_dim)

register(LLAMA, "Llama", decoder_of(block), qa=replace(LLAMA, prefix="transformer"))

loads("llama", LoadingFacts(rotary=True))
