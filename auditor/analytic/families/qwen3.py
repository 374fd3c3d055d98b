"""Qwen 3, https://arxiv.org/abs/2505.09388: heads of their own width, queries and keys normed."""

from msgspec.structs import replace

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    attention,
    decoder_of,
    gated_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.families.qwen2 import QWEN2
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import scaled

QWEN3 = Family(
    model_type="qwen3",
    prefix="model",
    base="Qwen3Model",
    keys=f"{QWEN2.keys} head_dim attention_bias",
)


def block(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    return layer(
        c,
        self_attn=attention(
            c, width, qkv_bias=bias, out_bias=bias, qk_norm=True, scale=scaled(c, width)
        ),
        mlp=gated_mlp(c),
    )


config_rules(
    "Qwen3Config",
    first=_configs.each(_configs.key_value_heads, _configs.windows_from_above),
)


qwen3_model = decoder_of(block)

register(QWEN3, "Qwen3", qwen3_model, qa=replace(QWEN3, prefix="transformer"))

loads("qwen3", LoadingFacts(rotary=True))
