"""Command R, R+ and R7B: attention and feed-forward in parallel, after one norm."""

from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.blocks import Module, Param, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder,
    gated_mlp,
    head_dim,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

COHERE = Family(
    model_type="cohere",
    prefix="model",
    base="CohereModel",
    keys=f"{KEYS} attention_bias use_qk_norm head_dim",
)

COHERE2 = replace(
    COHERE,
    model_type="cohere2",
    base="Cohere2Model",
    own=MappingProxyType({"use_qk_norm": False}),
)


def cohere_attention(c: Config, *, qk_norm: bool) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    norms = {}
    if qk_norm:  # a separate norm for each head
        norms = {
            "q_norm": module(weight=Param((c.dim("num_attention_heads"), width))),
            "k_norm": module(weight=Param((key_value_heads(c), width))),
        }
    return attention(c, width, qkv_bias=bias, out_bias=bias, norms=norms)


def cohere2_model(c: Config, *, qk_norm: bool = False) -> Module:
    return decoder(c, partial(block, c, qk_norm=qk_norm))


def block(c: Config, *, qk_norm: bool) -> Module:
    self_attn = cohere_attention(c, qk_norm=qk_norm)
    return layer(c, norms=("input_layernorm",), self_attn=self_attn, mlp=gated_mlp(c))


def cohere_model(c: Config) -> Module:
    return cohere2_model(c, qk_norm=c.present("use_qk_norm") and c.flag("use_qk_norm"))


derived_defaults("CohereConfig", "Cohere2Config")(_configs.key_value_heads)


register(COHERE, "Cohere", cohere_model, heads=HEADS[:1])
register(COHERE2, "Cohere2", cohere2_model, heads=HEADS[:1])

loads("cohere", LoadingFacts(rotary=True))
loads("cohere2", LoadingFacts(rotary=True))
