from hypothesis import strategies as st
from support.strategies._gpt import OF_GPT2, gpt_values
from support.strategies.common import sizes

VALUES = {
    "gpt2": gpt_values(
        OF_GPT2,
        max_position_embeddings=sizes(20),
        n_inner=st.none() | sizes(30),
        add_cross_attention=st.booleans(),
    )
}
