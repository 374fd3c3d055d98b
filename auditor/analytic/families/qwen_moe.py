"""Qwen 1.5, 2 and 3 with experts, https://arxiv.org/abs/2407.10671."""

from collections.abc import Callable
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.blocks import Linear, Module, Repeat, Stack, module, stack
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    FUSED_EXPERTS,
    KEYS,
    attention,
    decoder,
    gated_experts,
    gated_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.errors import CheckpointError

QWEN2_MOE = Family(
    model_type="qwen2_moe",
    prefix="model",
    base="Qwen2MoeModel",
    keys=(
        f"{KEYS} moe_intermediate_size shared_expert_intermediate_size qkv_bias num_experts "
        "num_experts_per_tok decoder_sparse_step mlp_only_layers head_dim"
    ),
)


def sparse_layers(
    c: Config, self_attn: Callable[[Config], Module], sparse_mlp: Callable[[Config], Module]
) -> Repeat | Stack:
    """Return the layers: every `decoder_sparse_step`-th has experts, except `mlp_only_layers`."""
    experts, step = c.dim("num_experts").value, c.integer("decoder_sparse_step")
    dense = c.integers("mlp_only_layers") if c.present("mlp_only_layers") else ()

    def sparse(number: int) -> bool:
        if experts < 1 or number in dense:
            return False
        if not step:
            key = f"{c.path}decoder_sparse_step"
            raise CheckpointError(f"{key} is 0; it has to be 1 or more", key)
        return not (number + 1) % step

    def block(has_experts: bool) -> Module:  # noqa: FBT001 - the only difference of layers
        mlp = sparse_mlp(c) if has_experts else gated_mlp(c)
        return layer(c, self_attn=self_attn(c), mlp=mlp)

    return stack(c.dim("num_hidden_layers"), sparse, block)


def shared_and_sparse_mlp(c: Config) -> Module:
    """Return the experts of Qwen 1.5 and 2, with a shared expert that every token uses."""
    D, E = c.dim("hidden_size"), c.dim("num_experts")
    return module(
        gate=Linear(D, E, bias=False),
        experts=gated_experts(c, E, width=c.dim("moe_intermediate_size")),
        shared_expert=gated_mlp(c, width=c.dim("shared_expert_intermediate_size")),
        shared_expert_gate=Linear(D, 1, bias=False),
    )


def qwen2_moe_model(c: Config) -> Module:
    return decoder(c, sparse_layers(c, biased_attention, shared_and_sparse_mlp))


def biased_attention(c: Config) -> Module:
    return attention(c, head_dim(c), qkv_bias=c.flag("qkv_bias"))


register(QWEN2_MOE, "Qwen2Moe", qwen2_moe_model)

loads("qwen2_moe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))


# --- Qwen 3 with experts --------------------------------------------------------------------------

# https://arxiv.org/abs/2505.09388: 128 experts; each token uses eight.

QWEN3_MOE = Family(
    model_type="qwen3_moe",
    prefix="model",
    base="Qwen3MoeModel",
    keys=(
        f"{KEYS} moe_intermediate_size attention_bias num_experts_per_tok decoder_sparse_step "
        "mlp_only_layers head_dim"
    ),
    own=MappingProxyType({"num_local_experts": 128}),
)


def sparse_mlp(c: Config) -> Module:
    E = c.dim("num_experts")
    return module(
        gate=Linear(c.dim("hidden_size"), E, bias=False),
        experts=gated_experts(c, E, width=c.dim("moe_intermediate_size")),
    )


def qwen3_moe_model(c: Config) -> Module:
    return decoder(c, sparse_layers(c, normed_attention, sparse_mlp))


def normed_attention(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    return attention(c, width, qkv_bias=bias, out_bias=bias, qk_norm=True)


register(QWEN3_MOE, "Qwen3Moe", qwen3_moe_model, qa=replace(QWEN3_MOE, prefix="transformer"))

loads("qwen3_moe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))
