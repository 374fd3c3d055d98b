"""Qwen 3 with experts, https://arxiv.org/abs/2505.09388: 128, and eight of them a token."""

from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules
from auditor.analytic.families._decoder import (
    KEYS,
    attention,
    decoder,
    gated_experts,
    head_dim,
    register,
)
from auditor.analytic.families._fused_experts import FUSED_EXPERTS
from auditor.analytic.families.qwen2_moe import sparse_layers
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import known_activation, scaled

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


def first(config: Settled, others: dict[str, Any]) -> None:
    del others
    if not config["use_sliding_window"]:
        config.set("sliding_window", None)
    if config["mlp_only_layers"] is None:
        config.set("mlp_only_layers", [])


config_rules("Qwen3MoeConfig", first=first)


register(QWEN3_MOE, "Qwen3Moe", qwen3_moe_model, qa=replace(QWEN3_MOE, prefix="transformer"))

loads("qwen3_moe", LoadingFacts(rules=FUSED_EXPERTS, rotary=True))
