"""GLM 4 of 2025: a Llama of rotated half heads, with norms around both halves of a layer."""

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    fused_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import scaled
from auditor.analytic.rotation import partial_frequencies

GLM4 = Family(
    model_type="glm4",
    prefix="model",
    base="Glm4Model",
    keys=f"{KEYS} head_dim attention_bias",
)


NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "post_self_attn_layernorm",
    "post_mlp_layernorm",
)


def block(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    self_attn = attention(c, width, qkv_bias=bias, scale=scaled(c, width))
    return layer(c, norms=NORMS, self_attn=self_attn, mlp=fused_mlp(c))


config_rules("Glm4Config", first=_configs.partly_turned(0.5))


register(GLM4, "Glm4", decoder_of(block, turns=partial_frequencies), heads=HEADS[:3])

loads("glm4", LoadingFacts(rotary=True))
