"""Granite 3 with experts, whose matrices are stored as one."""

from auditor.analytic.blocks import Experts, Linear, Module, Param, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import HEADS, KEYS, decoder_of, layer, register
from auditor.analytic.families.granite import granite_attention
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import known_activation

GRANITEMOE = Family(
    model_type="granitemoe",
    prefix="model",
    base="GraniteMoeModel",
    keys=f"{KEYS} attention_bias num_local_experts num_experts_per_tok head_dim",
)


def sparse_mlp(c: Config) -> Module:
    D, F, E = c.dim("hidden_size"), c.dim("intermediate_size"), c.dim("num_local_experts")
    k = c.dim("num_experts_per_tok")
    gate_and_up, down = Param((E, 2 * F, D)), Param((E, D, F))
    return module(
        input_linear=module(weight=Experts(gate_and_up, count=E, active=k)),
        output_linear=module(weight=Experts(down, count=E, active=k)),
        router=module(layer=Linear(D, E, bias=False)),
        activation=known_activation(c),
    )


def block(c: Config) -> Module:
    return layer(c, self_attn=granite_attention(c), block_sparse_moe=sparse_mlp(c))


register(GRANITEMOE, "GraniteMoe", decoder_of(block), heads=HEADS[:1])

loads(
    "granitemoe",
    LoadingFacts(
        rules=(
            (r"block_sparse_moe\.input_linear\.weight", "block_sparse_moe.experts.gate_up_proj"),
            (r"block_sparse_moe\.output_linear\.weight", "block_sparse_moe.experts.down_proj"),
            (r"block_sparse_moe\.router\.layer\.weight", "block_sparse_moe.router.weight"),
        ),
        rotary=True,
    ),
)
