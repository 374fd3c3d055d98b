"""Gemma 1, https://arxiv.org/abs/2403.08295, a Llama with heads of another width; Gemma 2."""

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
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

GEMMA = Family(
    model_type="gemma",
    prefix="model",
    base="GemmaModel",
    keys=f"{KEYS} head_dim attention_bias",
)


def gemma_attention(c: Config) -> Module:
    bias = c.flag("attention_bias")
    return attention(c, head_dim(c), qkv_bias=bias, out_bias=bias)


def block(c: Config) -> Module:
    return layer(c, self_attn=gemma_attention(c), mlp=gated_mlp(c))


register(GEMMA, "Gemma", decoder_of(block), heads=HEADS[:3])

loads("gemma", LoadingFacts(rotary=True))


# --- Gemma 2 --------------------------------------------------------------------------------------

# https://arxiv.org/abs/2408.00118: norms before and after attention and feed-forward.

GEMMA2 = Family(
    model_type="gemma2",
    prefix="model",
    base="Gemma2Model",
    keys=GEMMA.keys,
)

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def gemma2_block(c: Config) -> Module:
    mlp = gated_mlp(c, act="hidden_activation")
    return layer(c, self_attn=gemma_attention(c), norms=NORMS, mlp=mlp)


register(GEMMA2, "Gemma2", decoder_of(gemma2_block), heads=HEADS[:3])

loads("gemma2", LoadingFacts(rotary=True))
