from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import sizes

VALUES = {
    "gpt_neox": gpt_values(
        {},
        intermediate_size=sizes(30),
        max_position_embeddings=sizes(20),
        attention_bias=st.booleans(),
        rotary_pct=st.sampled_from([0.25, 0.5, 1.0, 1]),
        use_parallel_residual=st.booleans(),
    )
}
