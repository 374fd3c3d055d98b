from typing import Any

from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes


def sparse_options(experts: str) -> dict[str, st.SearchStrategy[Any]]:
    """Which layers have experts, how many, how wide, and heads of an own width."""
    return {
        experts: sizes(3, least=0),
        "num_experts_per_tok": sizes(2),
        "moe_intermediate_size": sizes(9),
        "decoder_sparse_step": sizes(3),
        "mlp_only_layers": st.none() | st.lists(sizes(5, least=0), max_size=3),
        "head_dim": st.sampled_from([2, 6]),
    }


_BIAS = {"attention_bias": st.booleans()}


VALUES = {
    "qwen2_moe": decoder_values(
        **sparse_options("num_experts"),
        shared_expert_intermediate_size=sizes(9),
        qkv_bias=st.booleans(),
    ),
    "qwen3_moe": decoder_values(**sparse_options("num_experts"), **_BIAS)
    | decoder_values(**sparse_options("num_local_experts"), **_BIAS),
}
