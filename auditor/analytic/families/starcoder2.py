"""StarCoder 2, https://arxiv.org/abs/2402.19173: layer norms, and biases everywhere."""

from auditor.analytic.activations import activation
from auditor.analytic.blocks import LayerNorm, Linear, Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    either_head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

STARCODER2 = Family(
    model_type="starcoder2",
    prefix="model",
    base="Starcoder2Model",
    keys=f"{KEYS} use_bias head_dim",
)


def mlp(c: Config, *, bias: bool) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    c_fc, c_proj = Linear(D, F, bias=bias), Linear(F, D, bias=bias)
    return module(c_fc=c_fc, c_proj=c_proj, act=activation(c))


def block(c: Config) -> Module:
    bias, width = c.flag("use_bias"), either_head_dim(c)
    return layer(
        c,
        norm=LayerNorm,
        self_attn=attention(c, width, qkv_bias=bias, out_bias=bias),
        mlp=mlp(c, bias=bias),
    )


register(STARCODER2, "Starcoder2", decoder_of(block, norm=LayerNorm), heads=HEADS[:3])

loads("starcoder2", LoadingFacts(rotary=True))
