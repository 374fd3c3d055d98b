"""Qwen 2, 2.5, https://arxiv.org/abs/2407.10671, and 3: Llama with biases on query, key and value.

JevForDecision, which transformers lists for this type, is built from a config of its own type.
"""

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

QWEN2 = Family(
    model_type="qwen2",
    prefix="model",
    base="Qwen2Model",
    keys=f"{KEYS} head_dim",
)


def block(c: Config) -> Module:
    self_attn = attention(c, head_dim(c), qkv_bias=True)
    return layer(c, self_attn=self_attn, mlp=gated_mlp(c))


derived_defaults("Qwen2Config", "Qwen3Config")(_configs.key_value_heads)

register(QWEN2, "Qwen2", decoder_of(block), qa=replace(QWEN2, prefix="transformer"))

loads("qwen2", LoadingFacts(rotary=True))


# --- Qwen 3 ---------------------------------------------------------------------------------------

# https://arxiv.org/abs/2505.09388: heads have their own width, queries and keys are normed.

QWEN3 = Family(
    model_type="qwen3",
    prefix="model",
    base="Qwen3Model",
    keys=f"{QWEN2.keys} attention_bias",
)


def qwen3_block(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    return layer(
        c,
        self_attn=attention(c, width, qkv_bias=bias, out_bias=bias, qk_norm=True),
        mlp=gated_mlp(c),
    )


qwen3_model = decoder_of(qwen3_block)

register(QWEN3, "Qwen3", qwen3_model, qa=replace(QWEN3, prefix="transformer"))

loads("qwen3", LoadingFacts(rotary=True))
