from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes

_OPTIONS = {
    "head_dim": st.sampled_from([2, 6]),
    "num_experts_per_tok": sizes(2),
    "attention_bias": st.booleans(),
}

VALUES = {
    "gpt_oss": decoder_values(num_local_experts=sizes(3), **_OPTIONS)
    | decoder_values(num_experts=sizes(3), **_OPTIONS)
}
