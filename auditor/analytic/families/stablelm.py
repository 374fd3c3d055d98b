"""StableLM 3B and 2, https://arxiv.org/abs/2402.17834: layer norms, and one for each head."""

from types import MappingProxyType

from auditor.analytic.blocks import LayerNorm, Module, Repeat, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    attention,
    decoder,
    gated_mlp,
    key_value_heads,
    layer,
    register,
)

STABLELM = Family(
    model_type="stablelm",
    taken_over=True,
    prefix="model",
    base="StableLmModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 50304,
            "hidden_size": 2560,
            "intermediate_size": 6912,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "use_qkv_bias": False,
            "qk_layernorm": False,
            "use_parallel_residual": False,
            "tie_word_embeddings": False,
        }
    ),
)


def stablelm_attention(c: Config) -> Module:
    H = c.dim("num_attention_heads")
    head_dim = c.dim("hidden_size") // H
    norms = {}
    if c.flag("qk_layernorm"):
        norm = LayerNorm(head_dim, bias=False)
        norms = {
            "q_layernorm": module(norms=Repeat(H, norm)),
            "k_layernorm": module(norms=Repeat(key_value_heads(c), norm)),
        }
    return attention(c, head_dim, qkv_bias=c.flag("use_qkv_bias"), norms=norms)


def stablelm_model(c: Config) -> Module:
    parallel = c.flag("use_parallel_residual")
    block = layer(
        c,
        norm=LayerNorm,
        norms=("input_layernorm", *(() if parallel else ("post_attention_layernorm",))),
        self_attn=stablelm_attention(c),
        mlp=gated_mlp(c),
    )
    return decoder(c, Repeat(c.dim("num_hidden_layers"), block), norm=LayerNorm)


register(STABLELM, "StableLm", stablelm_model, heads=HEADS[:3])
