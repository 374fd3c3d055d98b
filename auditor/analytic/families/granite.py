"""Granite 3, a Llama with constant factors that no checkpoint stores."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import Module, Unbuildable
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    attention,
    decoder,
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
    keys=(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads attention_bias mlp_bias tie_word_embeddings"
    ),
    own=MappingProxyType({"head_dim": None}),
)


def granite_attention(c: Config, *, scale: Unbuildable | None = None) -> Module:
    bias = c.flag("attention_bias")
    return attention(c, head_dim(c), qkv_bias=bias, out_bias=bias, scale=scale)


def granite_model(c: Config) -> Module:
    return decoder(c, partial(block, c))


def block(c: Config) -> Module:
    mlp = gated_mlp(c, bias=c.flag("mlp_bias"))
    return layer(c, self_attn=granite_attention(c), mlp=mlp)


config_rules("GraniteConfig", "GraniteMoeConfig", first=_configs.key_value_heads)


register(GRANITE, "Granite", granite_model, heads=HEADS[:1])

loads("granite", LoadingFacts(rotary=True))
