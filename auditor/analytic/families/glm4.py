"""GLM 4 of 2025: a Llama of rotated half heads, with norms around both halves of a layer."""

from types import MappingProxyType

from auditor.analytic.blocks import Module, Repeat
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import HEADS, attention, decoder, fused_mlp, layer, register

GLM4 = Family(
    model_type="glm4",
    prefix="model",
    base="Glm4Model",
    defaults=MappingProxyType(
        {
            "vocab_size": 151552,
            "hidden_size": 4096,
            "intermediate_size": 13696,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "attention_bias": True,
            "tie_word_embeddings": False,
        }
    ),
)


NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "post_self_attn_layernorm",
    "post_mlp_layernorm",
)


def glm4_model(c: Config) -> Module:
    bias = c.flag("attention_bias")
    self_attn = attention(c, c.dim("head_dim"), qkv_bias=bias)
    block = layer(c, norms=NORMS, self_attn=self_attn, mlp=fused_mlp(c))
    return decoder(c, Repeat(c.dim("num_hidden_layers"), block))


register(GLM4, "Glm4", glm4_model, heads=HEADS[:3])
