"""OLMo 2, https://arxiv.org/abs/2501.00656: norms behind each half of a layer, not before."""

from auditor.analytic.blocks import Module, RMSNorm
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    attention,
    decoder_of,
    gated_mlp,
    head_dim,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import scaled

OLMO2 = Family(
    model_type="olmo2",
    prefix="model",
    base="Olmo2Model",
    keys=f"{KEYS} attention_bias head_dim",
)


NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


def olmo2_attention(c: Config) -> Module:
    """Queries are normed over all heads at once, and so are keys."""
    bias, width = c.flag("attention_bias"), head_dim(c)
    return attention(
        c,
        width,
        qkv_bias=bias,
        out_bias=bias,
        scale=scaled(c, width),
        norms={
            "q_norm": RMSNorm(c.dim("num_attention_heads") * width),
            "k_norm": RMSNorm(key_value_heads(c) * width),
        },
    )


def block(c: Config) -> Module:
    return layer(c, norms=NORMS, self_attn=olmo2_attention(c), mlp=gated_mlp(c))


config_rules("Olmo2Config", first=_configs.key_value_heads)


register(OLMO2, "Olmo2", decoder_of(block), heads=HEADS[:2])

loads("olmo2", LoadingFacts(rotary=True))
