from hypothesis import strategies as st
from support.strategies.common import decoder_values, uneven_heads

VALUES = {
    "granite": decoder_values(
        **uneven_heads(), attention_bias=st.booleans(), mlp_bias=st.booleans()
    )
}
