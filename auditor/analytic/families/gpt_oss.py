"""gpt-oss, https://arxiv.org/abs/2508.10925: fused experts with biases, and a sink for every head.

Names and shapes here are those of the unpacked weights; published files contain MXFP4.
"""

from auditor.analytic.blocks import Experts, Linear, Module, Param, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

GPT_OSS = Family(
    model_type="gpt_oss",
    prefix="model",
    base="GptOssModel",
    keys=f"{KEYS} head_dim num_local_experts num_experts_per_tok attention_bias",
)


def sparse_mlp(c: Config) -> Module:
    """Return the router and the fused experts (E, in, out); gate and up columns alternate."""
    D, F, E = c.dim("hidden_size"), c.dim("intermediate_size"), c.dim("num_local_experts")
    experts = module(
        gate_up_proj=Param((E, D, 2 * F)),
        gate_up_proj_bias=Param((E, 2 * F)),
        down_proj=Param((E, F, D)),
        down_proj_bias=Param((E, D)),
    )
    return module(
        router=Linear(D, E),
        experts=Experts(experts, count=E, active=c.dim("num_experts_per_tok")),
    )


def block(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    sinks = Param((c.dim("num_attention_heads"),))
    heads = attention(c, width, qkv_bias=bias, out_bias=bias)
    return layer(c, self_attn=Module((*heads.children, ("sinks", sinks))), mlp=sparse_mlp(c))


derived_defaults("GptOssConfig")(_configs.head_dim)

register(GPT_OSS, "GptOss", decoder_of(block), heads=HEADS[:3])

loads("gpt_oss", LoadingFacts(rotary=True))
