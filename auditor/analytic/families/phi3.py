"""Phi 3 and 4, https://arxiv.org/abs/2404.14219: a Llama of fused projections."""

from types import MappingProxyType

from auditor.analytic.blocks import Linear, Module, Repeat, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    decoder,
    fused_mlp,
    key_value_heads,
    layer,
    register,
    rounded_head_dim,
)

PHI3 = Family(
    model_type="phi3",
    taken_over=True,
    prefix="model",
    base="Phi3Model",
    defaults=MappingProxyType(
        {
            "vocab_size": 32064,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "head_dim": None,
            "tie_word_embeddings": False,
        }
    ),
)


def fused_attention(c: Config) -> Module:
    D, H, head_dim = c.dim("hidden_size"), c.dim("num_attention_heads"), rounded_head_dim(c)
    return module(
        o_proj=Linear(H * head_dim, D, bias=False),
        qkv_proj=Linear(D, (H + 2 * key_value_heads(c)) * head_dim, bias=False),
    )


def phi3_model(c: Config) -> Module:
    block = layer(c, self_attn=fused_attention(c), mlp=fused_mlp(c))
    return decoder(c, Repeat(c.dim("num_hidden_layers"), block))


register(PHI3, "Phi3", phi3_model, heads=HEADS[:3])
