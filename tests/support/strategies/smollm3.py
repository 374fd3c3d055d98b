from hypothesis import strategies as st
from support.strategies.common import decoder_values, uneven_heads

VALUES = {
    "smollm3": decoder_values(
        **uneven_heads(), attention_bias=st.booleans(), mlp_bias=st.booleans()
    )
}
