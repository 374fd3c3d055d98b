"""Mistral 7B, https://arxiv.org/abs/2310.06825."""

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    KEYS,
    attention,
    decoder_of,
    either_head_dim,
    gated_mlp,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import scaled

MISTRAL = Family(
    model_type="mistral",
    prefix="model",
    base="MistralModel",
    keys=f"{KEYS} head_dim",
)


def block(c: Config) -> Module:
    width = either_head_dim(c)
    return layer(c, self_attn=attention(c, width, scale=scaled(c, width)), mlp=gated_mlp(c))


config_rules("MistralConfig", first=_configs.each(_configs.head_dim, _configs.key_value_heads))


register(MISTRAL, "Mistral", decoder_of(block))

loads("mistral", LoadingFacts(rotary=True))
