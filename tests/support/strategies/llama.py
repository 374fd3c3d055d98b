from hypothesis import strategies as st
from support.strategies.common import decoder_values

VALUES = {
    "llama": decoder_values(
        head_dim=st.sampled_from([None, 2, 6]),
        attention_bias=st.booleans(),
        mlp_bias=st.booleans(),
    )
}
