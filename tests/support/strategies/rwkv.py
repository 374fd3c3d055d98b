from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import sizes

VALUES = {
    "rwkv": gpt_values(
        {"max_position_embeddings": "context_length"},
        max_position_embeddings=sizes(20),
        attention_hidden_size=st.none() | sizes(12),
        intermediate_size=st.none() | sizes(30),
    )
}
