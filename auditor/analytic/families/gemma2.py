"""Gemma 2, https://arxiv.org/abs/2408.00118: norms before and after both halves of a layer."""

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import HEADS, decoder_of, gated_mlp, layer, register
from auditor.analytic.families.gemma import GEMMA, gemma_attention
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import scaled

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


def block(c: Config) -> Module:
    self_attn = gemma_attention(c, scaled(c, c.dim("query_pre_attn_scalar")))
    return layer(c, self_attn=self_attn, norms=NORMS, mlp=gated_mlp(c, act="hidden_activation"))


config_rules("Gemma2Config", first=_configs.every(2), architecture=_configs.even_heads)


register(GEMMA2, "Gemma2", decoder_of(block), heads=HEADS[:3])

loads("gemma2", LoadingFacts(rotary=True))
