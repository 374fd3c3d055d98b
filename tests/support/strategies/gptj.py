from hypothesis import strategies as st
from support.strategies._gpt import OF_GPT2, gpt_values
from support.strategies.common import sizes

VALUES = {
    "gptj": gpt_values(
        OF_GPT2,
        max_position_embeddings=sizes(20),
        n_inner=st.none() | sizes(30),
        rotary_dim=sizes(8),
    )
}
