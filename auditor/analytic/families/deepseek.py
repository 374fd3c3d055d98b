"""DeepSeek V2 and V3, https://arxiv.org/abs/2412.19437: latent attention, and experts that share.

The first layers are dense, the others have experts of which one or a few serve every token.
"""

from types import MappingProxyType

from auditor.analytic.blocks import (
    Buffer,
    Experts,
    Linear,
    Module,
    Param,
    Repeat,
    RMSNorm,
    module,
    stack,
)
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import HEADS, decoder, gated_mlp, layer, register
from auditor.analytic.families._drafting import drafting

DEEPSEEK_V2 = Family(
    model_type="deepseek_v2",
    taken_over=True,
    prefix="model",
    base="DeepseekV2Model",
    defaults=MappingProxyType(
        {
            "vocab_size": 102400,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "moe_intermediate_size": 1407,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "n_shared_experts": 2,
            "n_routed_experts": 64,
            "num_experts_per_tok": None,
            "first_k_dense_replace": 0,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
        }
    ),
    synonyms=MappingProxyType({"num_experts": "n_routed_experts"}),
)

DEEPSEEK_V3 = Family(
    model_type="deepseek_v3",
    taken_over=True,
    prefix="model",
    base="DeepseekV3Model",
    defaults=MappingProxyType(
        {
            **DEEPSEEK_V2.defaults,
            "vocab_size": 129280,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "num_nextn_predict_layers": 1,
        }
    ),
    synonyms=MappingProxyType(
        {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"}
    ),
)


def latent_attention(c: Config) -> Module:
    """Queries, and keys with values, each by way of a narrow vector that is normed."""
    D, H, bias = c.dim("hidden_size"), c.dim("num_attention_heads"), c.flag("attention_bias")
    nope, rope = c.dim("qk_nope_head_dim"), c.dim("qk_rope_head_dim")
    values, narrow = c.dim("v_head_dim"), c.dim("kv_lora_rank")
    return module(
        **queries(c),
        kv_a_proj_with_mqa=Linear(D, narrow + rope, bias=bias),
        kv_a_layernorm=RMSNorm(narrow),
        kv_b_proj=Linear(narrow, H * (nope + values), bias=False),
        o_proj=Linear(H * values, D, bias=bias),
    )


def queries(c: Config) -> dict[str, Module]:
    D, narrow = c.dim("hidden_size"), c.optional("q_lora_rank")
    heads = c.dim("num_attention_heads") * (c.dim("qk_nope_head_dim") + c.dim("qk_rope_head_dim"))
    if narrow is None:
        return {"q_proj": Linear(D, heads, bias=False)}
    return {
        "q_a_proj": Linear(D, narrow, bias=c.flag("attention_bias")),
        "q_a_layernorm": RMSNorm(narrow),
        "q_b_proj": Linear(narrow, heads, bias=False),
    }


def sparse_mlp(c: Config, *, bias: bool, correction: bool) -> Module:
    """`correction`: the router keeps a balance of its own, which is no gradient's work."""
    D, E, width = c.dim("hidden_size"), c.dim("n_routed_experts"), c.dim("moe_intermediate_size")
    experts = Repeat(E, gated_mlp(c, width=width))
    active = c.optional("num_experts_per_tok")
    return module(
        experts=experts if active is None else Experts(experts, count=E, active=active),
        gate=module(
            weight=Param((E, D)),
            e_score_correction_bias=Buffer((E,)) if correction else None,
        ),
        shared_experts=gated_mlp(c, width=c.dim("n_shared_experts") * width, bias=bias),
    )


def deepseek_v2_model(c: Config) -> Module:
    attention, bias = latent_attention(c), c.flag("mlp_bias")
    dense_layers = c.integer("first_k_dense_replace")

    def block(dense: bool) -> Module:  # noqa: FBT001 - the one thing in which layers differ
        mlp = gated_mlp(c, bias=bias) if dense else sparse_mlp(c, bias=bias, correction=False)
        return layer(c, self_attn=attention, mlp=mlp)

    return decoder(c, stack(c.dim("num_hidden_layers"), lambda n: n < dense_layers, block))


def deepseek_v3_model(c: Config) -> Module:
    attention, dense_layers = latent_attention(c), c.integer("first_k_dense_replace")

    def block(dense: bool) -> Module:  # noqa: FBT001 - the one thing in which layers differ
        mlp = gated_mlp(c) if dense else sparse_mlp(c, bias=False, correction=True)
        return layer(c, self_attn=attention, mlp=mlp)

    layers = stack(c.dim("num_hidden_layers"), lambda n: n < dense_layers, block)
    return Module((*decoder(c, layers).children, *drafting(c, block(dense=False))))


register(DEEPSEEK_V2, "DeepseekV2", deepseek_v2_model, heads=HEADS[:2])
register(DEEPSEEK_V3, "DeepseekV3", deepseek_v3_model, heads=HEADS[:3])
