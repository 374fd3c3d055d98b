"""Granite 3, a Llama with constant factors that no checkpoint stores; dense or with experts."""

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
    keys=f"{KEYS} attention_bias mlp_bias head_dim",
)


def granite_attention(c: Config) -> Module:
    bias = c.flag("attention_bias")
    return attention(c, head_dim(c), qkv_bias=bias, out_bias=bias)


def block(c: Config) -> Module:
    mlp = gated_mlp(c, bias=c.flag("mlp_bias"))
    return layer(c, self_attn=granite_attention(c), mlp=mlp)


derived_defaults("GraniteConfig", "GraniteMoeConfig")(_configs.key_value_heads)

register(GRANITE, "Granite", decoder_of(block), heads=HEADS[:1])

loads("granite", LoadingFacts(rotary=True))


# --- Granite 3 with experts -----------------------------------------------------------------------

# The matrices of all experts of a layer are stored as one.

GRANITEMOE = Family(
    model_type="granitemoe",
    prefix="model",
    base="GraniteMoeModel",
    keys=f"{KEYS} attention_bias num_local_experts num_experts_per_tok head_dim",
)


def sparse_mlp(c: Config) -> Module:
    D, F, E = c.dim("hidden_size"), c.dim("intermediate_size"), c.dim("num_local_experts")
    k = c.dim("num_experts_per_tok")
    gate_and_up, down = Param((E, 2 * F, D)), Param((E, D, F))
    return module(
        input_linear=module(weight=Experts(gate_and_up, count=E, active=k)),
        output_linear=module(weight=Experts(down, count=E, active=k)),
        router=module(layer=Linear(D, E, bias=False)),
    )


def granitemoe_block(c: Config) -> Module:
    return layer(c, self_attn=granite_attention(c), block_sparse_moe=sparse_mlp(c))


register(GRANITEMOE, "GraniteMoe", decoder_of(granitemoe_block), heads=HEADS[:1])

loads(
    "granitemoe",
    LoadingFacts(
        rules=(
            (r"block_sparse_moe\.input_linear\.weight", "block_sparse_moe.experts.gate_up_proj"),
            (r"block_sparse_moe\.output_linear\.weight", "block_sparse_moe.experts.down_proj"),
            (r"block_sparse_moe\.router\.layer\.weight", "block_sparse_moe.router.weight"),
        ),
        rotary=True,
    ),
)
