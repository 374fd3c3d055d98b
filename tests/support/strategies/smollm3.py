from analytic.strategies.common import decoder_values, uneven_heads
from hypothesis import strategies as st

VALUES = {
    "smollm3": decoder_values(
        **uneven_heads(), attention_bias=st.booleans(), mlp_bias=st.booleans()
    )
}
