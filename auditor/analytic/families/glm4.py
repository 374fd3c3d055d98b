"""GLM 4 of 2025, a Llama with norms around attention and feed-forward; and GLM 4.5."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import Module, stack
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    FUSED_EXPERTS,
    HEADS,
    KEYS,
    attention,
    decoder,
    gated_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.families._drafting import drafting
from auditor.analytic.families.deepseek import sparse_mlp
from auditor.analytic.family import LoadingFacts, loads

# https://arxiv.org/abs/2508.06471: the experts of DeepSeek V3.

GLM4_MOE = Family(
    model_type="glm4_moe",
    prefix="model",
    base="Glm4MoeModel",
    keys=(
        f"{KEYS} moe_intermediate_size attention_bias use_qk_norm n_shared_experts "
        "n_routed_experts num_experts_per_tok first_k_dense_replace head_dim"
    ),
    own=MappingProxyType({"num_nextn_predict_layers": 1}),
)


def glm4_moe_model(c: Config) -> Module:
    dense_layers = c.integer("first_k_dense_replace")
    block = partial(glm4_moe_layer, c)
    layers = stack(c.dim("num_hidden_layers"), lambda n: n < dense_layers, block)
    model = decoder(c, layers)
    return Module((*model.children, *drafting(c, partial(block, dense=False))))


def glm4_moe_layer(c: Config, dense: bool) -> Module:  # noqa: FBT001 - the only difference of layers
    width, bias, norm = head_dim(c), c.flag("attention_bias"), c.flag("use_qk_norm")
    return layer(
        c,
        self_attn=attention(c, width, qkv_bias=bias, qk_norm=norm),
        mlp=gated_mlp(c) if dense else sparse_mlp(c, bias=False, correction=True),
    )


register(GLM4_MOE, "Glm4Moe", glm4_moe_model, heads=HEADS[:1])

loads(
    "glm4_moe",
    LoadingFacts(
        rules=FUSED_EXPERTS,
        silent=(r"model\.layers\.92.*", r"model\.layers\.46.*"),
        rotary=True,
    ),
)
