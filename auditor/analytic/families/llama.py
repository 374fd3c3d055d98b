"""Llama 1 to 3, https://arxiv.org/abs/2302.13971, and those that keep its tensors."""

from dataclasses import replace
from types import MappingProxyType

from auditor.analytic.blocks import Module, Repeat
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    attention,
    decoder,
    gated_mlp,
    head_dim,
    layer,
    register,
)

LLAMA = Family(
    model_type="llama",
    prefix="model",
    base="LlamaModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "head_dim": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
        }
    ),
)


def llama_model(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    _ = D // H  # has to be exact, even where head_dim says otherwise
    bias = c.flag("attention_bias")
    block = layer(
        c,
        self_attn=attention(c, head_dim(c), qkv_bias=bias, out_bias=bias, frequencies=True),
        mlp=gated_mlp(c, bias=c.flag("mlp_bias")),
    )
    return decoder(c, Repeat(c.dim("num_hidden_layers"), block))


register(LLAMA, "Llama", llama_model, qa=replace(LLAMA, prefix="transformer"))
