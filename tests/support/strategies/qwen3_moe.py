from hypothesis import strategies as st
from support.strategies.common import decoder_values
from support.strategies.qwen2_moe import sparse_options

_BIAS = {"attention_bias": st.booleans()}

VALUES = {
    "qwen3_moe": decoder_values(**sparse_options("num_experts"), **_BIAS)
    | decoder_values(**sparse_options("num_local_experts"), **_BIAS)
}
