"""Mistral 7B, https://arxiv.org/abs/2310.06825, and Mixtral."""

from functools import partial

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    KEYS,
    attention,
    decoder_of,
    either_head_dim,
    experts,
    fused_experts,
    gated_mlp,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

MISTRAL = Family(
    model_type="mistral",
    prefix="model",
    base="MistralModel",
    keys=f"{KEYS} head_dim",
)


def block(c: Config) -> Module:
    return layer(c, self_attn=attention(c, either_head_dim(c)), mlp=gated_mlp(c))


derived_defaults("MistralConfig")(_configs.head_dim)

register(MISTRAL, "Mistral", decoder_of(block))

loads("mistral", LoadingFacts(rotary=True))


# --- Mixtral 8x7B ---------------------------------------------------------------------------------

# https://arxiv.org/abs/2401.04088: a Mistral with eight experts; each token uses two.

MIXTRAL = Family(
    model_type="mixtral",
    prefix="model",
    base="MixtralModel",
    keys=f"{MISTRAL.keys} num_local_experts num_experts_per_tok",
)


def sparse_mlp(c: Config) -> Module:
    E = c.dim("num_local_experts")
    return module(
        gate=Linear(c.dim("hidden_size"), E, bias=False),
        experts=experts(c, E, partial(expert, c)),
    )


def expert(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        w1=Linear(D, F, bias=False), w2=Linear(F, D, bias=False), w3=Linear(D, F, bias=False)
    )


def mixtral_block(c: Config) -> Module:
    self_attn = attention(c, either_head_dim(c))
    return layer(c, self_attn=self_attn, block_sparse_moe=sparse_mlp(c))


derived_defaults("MixtralConfig")(_configs.key_value_heads)

register(MIXTRAL, "Mixtral", decoder_of(mixtral_block))

loads(
    "mixtral",
    LoadingFacts(
        rules=((".block_sparse_moe.", ".mlp."), *fused_experts("w1", "w3", "w2", ".experts")),
        rotary=True,
    ),
)
