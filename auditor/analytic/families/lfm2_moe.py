"""LFM2 with experts, https://arxiv.org/abs/2511.23404, in all but the first layers."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import Buffer, Linear, Module, module, stack
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import config_rules
from auditor.analytic.families._decoder import HEADS, KEYS, experts, register, types_of_layers
from auditor.analytic.families._fused_experts import fused_experts
from auditor.analytic.families.lfm2 import decoder, gated_mlp, layer, older_keys
from auditor.analytic.family import LoadingFacts, loads

LFM2_MOE = Family(
    model_type="lfm2_moe",
    prefix="model",
    base="Lfm2MoeModel",
    keys=(
        f"{KEYS} moe_intermediate_size conv_bias conv_L_cache num_dense_layers num_experts "
        "num_experts_per_tok use_expert_bias head_dim"
    ),
    older=MappingProxyType({"tie_embedding": "tie_word_embeddings"}),
)


def sparse_mlp(c: Config) -> Module:
    """`expert_bias` is a buffer that balances the experts; no gradient changes it."""
    E = c.dim("num_experts")
    return module(
        experts=experts(c, E, partial(gated_mlp, c, c.dim("moe_intermediate_size"))),
        gate=Linear(c.dim("hidden_size"), E, bias=False),
        expert_bias=Buffer((E,)) if c.flag("use_expert_bias") else None,
    )


def lfm2_moe_model(c: Config) -> Module:
    count, dense_layers = c.dim("num_hidden_layers"), c.integer("num_dense_layers")
    types = types_of_layers(c) if count.value > 0 else ()

    def block(kind: tuple[bool, bool]) -> Module:
        attends, dense = kind
        mlp = gated_mlp(c, c.dim("intermediate_size")) if dense else sparse_mlp(c)
        return layer(c, attends=attends, feed_forward=mlp)

    return decoder(c, stack(count, lambda n: (types[n] != "conv", n < dense_layers), block))


config_rules("Lfm2MoeConfig", first=older_keys)

register(LFM2_MOE, "Lfm2Moe", lfm2_moe_model, heads=HEADS[:1])

loads("lfm2_moe", LoadingFacts(rules=fused_experts("w1", "w3", "w2", "feed_forward.experts")))
