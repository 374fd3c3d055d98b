from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes, uneven_heads

_OPTIONS = {
    **uneven_heads(),
    "attention_bias": st.booleans(),
    "num_experts_per_tok": sizes(3),
}


VALUES = {
    "olmo2": decoder_values(**uneven_heads(), attention_bias=st.booleans()),
    "olmoe": decoder_values(num_experts=sizes(3), **_OPTIONS)
    | decoder_values(num_local_experts=sizes(3), **_OPTIONS),
}
