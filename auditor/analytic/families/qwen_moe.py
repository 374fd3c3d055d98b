"""Qwen 1.5, 2 and 3 with experts, https://arxiv.org/abs/2407.10671."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from auditor.analytic.blocks import Linear, Module, Repeat, Stack, module, stack
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules, layers
from auditor.analytic.families import _configs
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
from auditor.analytic.parts import known_activation, scaled
from auditor.errors import CheckpointError

QWEN2_MOE = Family(
    model_type="qwen2_moe",
    prefix="model",
    base="Qwen2MoeModel",
    keys=(
        f"{KEYS} moe_intermediate_size shared_expert_intermediate_size qkv_bias num_experts "
        "num_experts_per_tok decoder_sparse_step mlp_only_layers head_dim"
    ),
    letters=MappingProxyType({"shared_expert_intermediate_size": "F_shared"}),
)


def sparse_layers(
    c: Config, self_attn: Callable[[Config], Module], sparse_mlp: Callable[[Config], Module]
) -> Repeat | Stack:
    """Every `decoder_sparse_step`-th layer has experts, those of `mlp_only_layers` excepted."""
    experts, step = c.dim("num_experts").value, c.integer("decoder_sparse_step")
    dense = c.integers("mlp_only_layers") if c.present("mlp_only_layers") else ()

    def sparse(number: int) -> bool:
        if experts < 1 or number in dense:
            return False
        if not step:
            key = f"{c.path}decoder_sparse_step"
            raise CheckpointError(f"{key} is 0; it has to be 1 or more", key)
        return not (number + 1) % step

    def block(has_experts: bool) -> Module:  # noqa: FBT001 - the one thing in which layers differ
        mlp = sparse_mlp(c) if has_experts else gated_mlp(c)
        return layer(c, self_attn=self_attn(c), mlp=mlp)

    return stack(c.dim("num_hidden_layers"), sparse, block)


def shared_and_sparse_mlp(c: Config) -> Module:
    """Of Qwen 1.5 and 2: one expert more serves every token."""
    D, E = c.dim("hidden_size"), c.dim("num_experts")
    return module(
        gate=Linear(D, E, bias=False),
        experts=gated_experts(c, E, width=c.dim("moe_intermediate_size")),
        shared_expert=gated_mlp(c, width=c.dim("shared_expert_intermediate_size")),
        shared_expert_gate=Linear(D, 1, bias=False),
        act_fn=known_activation(c),
    )


def qwen2_moe_model(c: Config) -> Module:
    return decoder(c, sparse_layers(c, biased_attention, shared_and_sparse_mlp))


def biased_attention(c: Config) -> Module:
    width = head_dim(c)
    return attention(c, width, qkv_bias=c.flag("qkv_bias"), scale=scaled(c, width))


def first(config: Settled, others: dict[str, Any]) -> None:
    """Windows, where they are used, are those of every other layer below `max_window_layers`."""
    del others
    if config["mlp_only_layers"] is None:
        config.set("mlp_only_layers", [])
    used, last = config["use_sliding_window"], config["max_window_layers"]
    if not used:
        config.set("sliding_window", 0)
    sliding = _configs.SLIDING
    layers.fill_layer_types(
        config, lambda n: sliding if (n + 1) % 2 and n < last and used else _configs.FULL
    )


config_rules("Qwen2MoeConfig", first=first)


register(QWEN2_MOE, "Qwen2Moe", qwen2_moe_model)

loads("qwen2_moe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))


# --- Qwen 3 with experts --------------------------------------------------------------------------

# https://arxiv.org/abs/2505.09388: 128, and eight of them a token.

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
        act_fn=known_activation(c),
    )


def qwen3_moe_model(c: Config) -> Module:
    return decoder(c, sparse_layers(c, normed_attention, sparse_mlp))


def normed_attention(c: Config) -> Module:
    bias, width = c.flag("attention_bias"), head_dim(c)
    return attention(c, width, qkv_bias=bias, out_bias=bias, qk_norm=True, scale=scaled(c, width))


def qwen3_moe_first(config: Settled, others: dict[str, Any]) -> None:
    del others
    if not config["use_sliding_window"]:
        config.set("sliding_window", None)
    if config["mlp_only_layers"] is None:
        config.set("mlp_only_layers", [])


config_rules("Qwen3MoeConfig", first=qwen3_moe_first)


register(QWEN3_MOE, "Qwen3Moe", qwen3_moe_model, qa=replace(QWEN3_MOE, prefix="transformer"))

loads("qwen3_moe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))
