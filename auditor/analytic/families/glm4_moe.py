"""GLM 4.5 and 4.6, https://arxiv.org/abs/2508.06471: the experts of DeepSeek V3."""

from types import MappingProxyType

from auditor.analytic.blocks import Module, stack
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    HEADS,
    attention,
    decoder,
    gated_mlp,
    layer,
    register,
    rounded_head_dim,
)
from auditor.analytic.families._drafting import drafting
from auditor.analytic.families.deepseek import sparse_mlp

GLM4_MOE = Family(
    model_type="glm4_moe",
    prefix="model",
    base="Glm4MoeModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 151552,
            "hidden_size": 4096,
            "intermediate_size": 10944,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "moe_intermediate_size": 1408,
            "head_dim": None,
            "attention_bias": False,
            "use_qk_norm": False,
            "n_shared_experts": 1,
            "n_routed_experts": 128,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 1,
            "tie_word_embeddings": False,
        }
    ),
    synonyms=MappingProxyType(
        {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"}
    ),
)


def glm4_moe_model(c: Config) -> Module:
    self_attn = attention(
        c,
        rounded_head_dim(c),
        qkv_bias=c.flag("attention_bias"),
        qk_norm=c.flag("use_qk_norm"),
    )
    dense_layers = c.integer("first_k_dense_replace")

    def block(dense: bool) -> Module:  # noqa: FBT001 - the one thing in which layers differ
        mlp = gated_mlp(c) if dense else sparse_mlp(c, bias=False, correction=True)
        return layer(c, self_attn=self_attn, mlp=mlp)

    layers = stack(c.dim("num_hidden_layers"), lambda n: n < dense_layers, block)
    return Module((*decoder(c, layers).children, *drafting(c, block(dense=False))))


register(GLM4_MOE, "Glm4Moe", glm4_moe_model, heads=HEADS[:1])
