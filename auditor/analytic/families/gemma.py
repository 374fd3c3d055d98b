"""Gemma 1, https://arxiv.org/abs/2403.08295, a Llama with heads of their own width; Gemma 2."""

from typing import Any

from auditor.analytic.blocks import Module, Unbuildable
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules
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
from auditor.analytic.parts import scaled

GEMMA = Family(
    model_type="gemma",
    prefix="model",
    base="GemmaModel",
    keys=f"{KEYS} head_dim attention_bias",
)


def gemma_attention(c: Config, scale: Unbuildable | None) -> Module:
    bias = c.flag("attention_bias")
    return attention(c, head_dim(c), qkv_bias=bias, out_bias=bias, scale=scale)


def block(c: Config) -> Module:
    self_attn = gemma_attention(c, scaled(c, c.dim("head_dim")))
    return layer(c, self_attn=self_attn, mlp=gated_mlp(c))


def first(config: Settled, others: dict[str, Any]) -> None:
    del others
    if config["hidden_act"] == "gelu":  # its first releases meant another by the name
        config.set("hidden_act", "gelu_pytorch_tanh")


config_rules("GemmaConfig", first=first)


register(GEMMA, "Gemma", decoder_of(block), heads=HEADS[:3])

loads("gemma", LoadingFacts(rotary=True))


# --- Gemma 2 --------------------------------------------------------------------------------------

# https://arxiv.org/abs/2408.00118: norms before and after both halves of a layer.

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
    self_attn = gemma_attention(c, scaled(c, c.dim("query_pre_attn_scalar")))
    return layer(c, self_attn=self_attn, norms=NORMS, mlp=gated_mlp(c, act="hidden_activation"))


config_rules("Gemma2Config", first=_configs.every(2), architecture=_configs.even_heads)


register(GEMMA2, "Gemma2", decoder_of(gemma2_block), heads=HEADS[:3])

loads("gemma2", LoadingFacts(rotary=True))
