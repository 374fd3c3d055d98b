"""StableLM 3B and 2, https://arxiv.org/abs/2402.17834: layer norms, and one norm for each head."""

from functools import partial

from auditor.analytic.blocks import LayerNorm, Module, module, repeat
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    gated_mlp,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads

STABLELM = Family(
    model_type="stablelm",
    taken_over=True,
    prefix="model",
    base="StableLmModel",
    keys=f"{KEYS} use_qkv_bias qk_layernorm use_parallel_residual",
)


def stablelm_attention(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    width = D.floor(H)
    norms = {}
    if c.flag("qk_layernorm"):
        norm = partial(LayerNorm, width, bias=False)
        norms = {
            "q_layernorm": module(norms=repeat(H, norm)),
            "k_layernorm": module(norms=repeat(key_value_heads(c), norm)),
        }
    return attention(c, width, qkv_bias=c.flag("use_qkv_bias"), norms=norms)


def block(c: Config) -> Module:
    parallel = c.flag("use_parallel_residual")
    return layer(
        c,
        norm=LayerNorm,
        norms=("input_layernorm", *(() if parallel else ("post_attention_layernorm",))),
        self_attn=stablelm_attention(c),
        mlp=gated_mlp(c),
    )


register(STABLELM, "StableLm", decoder_of(block, norm=LayerNorm), heads=HEADS[:3])

loads("stablelm", LoadingFacts(rotary=True))
