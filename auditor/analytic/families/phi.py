"""Phi 1 to 2: attention and feed-forward in parallel, after one norm.

Phi 1 is https://arxiv.org/abs/2306.11644.
"""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    head_dim,
    key_value_heads,
    layer,
    lm_head,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

PHI = Family(
    model_type="phi",
    taken_over=True,
    prefix="model",
    base="PhiModel",
    keys=f"{KEYS} qk_layernorm head_dim",
)


def phi_model(c: Config) -> Module:
    D, V = c.dim("hidden_size"), c.dim("vocab_size")
    return module(
        embed_tokens=Embedding(V, D),
        layers=repeat(c.dim("num_hidden_layers"), partial(block, c)),
        final_layernorm=LayerNorm(D),
    )


def block(c: Config) -> Module:
    return layer(
        c,
        norm=LayerNorm,
        norms=("input_layernorm",),
        self_attn=phi_attention(c),
        mlp=mlp(c),
    )


def phi_attention(c: Config) -> Module:
    D, H, K = c.dim("hidden_size"), c.dim("num_attention_heads"), key_value_heads(c)
    width = head_dim(c)
    norm = LayerNorm(D.floor(H)) if c.flag("qk_layernorm") else None
    return module(
        q_proj=Linear(D, H * width),
        k_proj=Linear(D, K * width),
        v_proj=Linear(D, K * width),
        dense=Linear(H * width, D),
        q_layernorm=norm,
        k_layernorm=norm,
    )


def mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(fc1=Linear(D, F), fc2=Linear(F, D), activation_fn=activation(c))


derived_defaults("PhiConfig")(_configs.key_value_heads)

register(PHI, "Phi", phi_model, heads=HEADS[1:3])


@architecture("PhiForCausalLM", PHI)
def for_causal_lm(c: Config) -> Module:
    return module(model=phi_model(c), lm_head=lm_head(c, bias=True))


loads("phi", LoadingFacts(rotary=True))
