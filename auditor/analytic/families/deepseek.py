"""DeepSeek V2 and V3, https://arxiv.org/abs/2412.19437: latent attention, and shared experts.

The first layers are dense; the others have experts, one or a few of which every token uses.
"""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import (
    Buffer,
    Experts,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    repeat,
    stack,
)
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    FUSED_EXPERTS,
    HEADS,
    decoder,
    gated_mlp,
    layer,
    register,
)
from auditor.analytic.families._drafting import drafting
from auditor.analytic.family import LoadingFacts, loads

DEEPSEEK_V2 = Family(
    model_type="deepseek_v2",
    taken_over=True,
    prefix="model",
    base="DeepseekV2Model",
    keys=(
        "vocab_size hidden_size intermediate_size moe_intermediate_size num_hidden_layers "
        "num_attention_heads n_shared_experts n_routed_experts num_experts_per_tok "
        "first_k_dense_replace q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim "
        "v_head_dim attention_bias mlp_bias tie_word_embeddings"
    ),
)

DEEPSEEK_V3 = Family(
    model_type="deepseek_v3",
    taken_over=True,
    prefix="model",
    base="DeepseekV3Model",
    keys=(
        "vocab_size hidden_size intermediate_size moe_intermediate_size num_hidden_layers "
        "num_attention_heads n_shared_experts n_routed_experts num_experts_per_tok "
        "first_k_dense_replace q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim "
        "v_head_dim attention_bias tie_word_embeddings"
    ),
    own=MappingProxyType({"mlp_bias": False, "num_nextn_predict_layers": 1}),
)


def latent_attention(c: Config) -> Module:
    """Return latent attention: queries, keys and values are computed from normed latents."""
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
    """Return experts and router; `correction` adds the buffer that balances the experts."""
    D, E, width = c.dim("hidden_size"), c.dim("n_routed_experts"), c.dim("moe_intermediate_size")
    experts = repeat(E, partial(gated_mlp, c, width=width, act=None))
    active = c.optional("num_experts_per_tok") if E.value > 0 else None
    return module(
        experts=experts if active is None else Experts(experts, count=E, active=active),
        gate=module(
            weight=Param((E, D)),
            e_score_correction_bias=Buffer((E,)) if correction else None,
        ),
        shared_experts=gated_mlp(c, width=c.dim("n_shared_experts") * width, bias=bias),
    )


def deepseek_v2_model(c: Config) -> Module:
    bias, dense_layers = c.flag("mlp_bias"), c.integer("first_k_dense_replace")

    def block(dense: bool) -> Module:  # noqa: FBT001 - the only difference of layers
        mlp = gated_mlp(c, bias=bias) if dense else sparse_mlp(c, bias=bias, correction=False)
        return layer(c, self_attn=latent_attention(c), mlp=mlp)

    return decoder(c, stack(c.dim("num_hidden_layers"), lambda n: n < dense_layers, block))


def deepseek_v3_model(c: Config) -> Module:
    dense_layers = c.integer("first_k_dense_replace")

    def block(dense: bool) -> Module:  # noqa: FBT001 - the only difference of layers
        mlp = gated_mlp(c) if dense else sparse_mlp(c, bias=False, correction=True)
        return layer(c, self_attn=latent_attention(c), mlp=mlp)

    layers = stack(c.dim("num_hidden_layers"), lambda n: n < dense_layers, block)
    return Module((*decoder(c, layers).children, *drafting(c, partial(block, dense=False))))


derived_defaults("DeepseekV2Config", "DeepseekV3Config")(_configs.key_value_heads)

register(DEEPSEEK_V2, "DeepseekV2", deepseek_v2_model, heads=HEADS[:2])
register(DEEPSEEK_V3, "DeepseekV3", deepseek_v3_model, heads=HEADS[:3])

loads("deepseek_v2", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))
loads(
    "deepseek_v3", LoadingFacts(rules=FUSED_EXPERTS, silent=(r"model\.layers\.61.*",), rotary=True)
)
