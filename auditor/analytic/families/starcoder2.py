"""StarCoder 2, https://arxiv.org/abs/2402.19173: layer norms, and biases everywhere."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import LayerNorm, Linear, Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    attention,
    decoder,
    either_head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import activation, scaled

STARCODER2 = Family(
    model_type="starcoder2",
    prefix="model",
    base="Starcoder2Model",
    keys=(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads use_bias tie_word_embeddings"
    ),
    own=MappingProxyType({"head_dim": None}),
)


def mlp(c: Config, *, bias: bool) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    c_fc, c_proj = Linear(D, F, bias=bias), Linear(F, D, bias=bias)
    return module(c_fc=c_fc, c_proj=c_proj, act=activation(c))


def starcoder2_model(c: Config) -> Module:
    return decoder(c, partial(block, c), norm=LayerNorm)


def block(c: Config) -> Module:
    bias, width = c.flag("use_bias"), either_head_dim(c)
    return layer(
        c,
        norm=LayerNorm,
        self_attn=attention(c, width, qkv_bias=bias, out_bias=bias, scale=scaled(c, width)),
        mlp=mlp(c, bias=bias),
    )


register(STARCODER2, "Starcoder2", starcoder2_model, heads=HEADS[:3])

loads("starcoder2", LoadingFacts(rotary=True))
