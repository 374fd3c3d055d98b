from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes, uneven_heads

VALUES = {
    "granite": decoder_values(
        **uneven_heads(), attention_bias=st.booleans(), mlp_bias=st.booleans()
    ),
    "granitemoe": decoder_values(
        **uneven_heads(),
        attention_bias=st.booleans(),
        num_local_experts=sizes(3),
        num_experts_per_tok=sizes(3),
    ),
}
