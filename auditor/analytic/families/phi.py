"""Phi 1 to 2: attention and feed-forward side by side, behind one norm.

The first is https://arxiv.org/abs/2306.11644.
"""

from types import MappingProxyType

from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, Repeat, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    key_value_heads,
    layer,
    lm_head,
    register,
    rounded_head_dim,
)

PHI = Family(
    model_type="phi",
    taken_over=True,
    prefix="model",
    base="PhiModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 51200,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "head_dim": None,
            "qk_layernorm": False,
            "tie_word_embeddings": False,
        }
    ),
)


def phi_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    block = layer(
        c, norm=LayerNorm, norms=("input_layernorm",), self_attn=phi_attention(c), mlp=mlp(c)
    )
    return module(
        embed_tokens=Embedding(c.dim("vocab_size"), D),
        layers=Repeat(c.dim("num_hidden_layers"), block),
        final_layernorm=LayerNorm(D),
    )


def phi_attention(c: Config) -> Module:
    D, H, K = c.dim("hidden_size"), c.dim("num_attention_heads"), key_value_heads(c)
    head_dim = rounded_head_dim(c)
    norm = LayerNorm(D.floor(H)) if c.flag("qk_layernorm") else None
    return module(
        q_proj=Linear(D, H * head_dim),
        k_proj=Linear(D, K * head_dim),
        v_proj=Linear(D, K * head_dim),
        dense=Linear(H * head_dim, D),
        q_layernorm=norm,
        k_layernorm=norm,
    )


def mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(fc1=Linear(D, F), fc2=Linear(F, D))


register(PHI, "Phi", phi_model, heads=HEADS[1:3])


@architecture("PhiForCausalLM", PHI)
def for_causal_lm(c: Config) -> Module:
    return module(model=phi_model(c), lm_head=lm_head(c, bias=True))
