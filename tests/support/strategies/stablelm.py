from analytic.strategies.common import decoder_values
from hypothesis import strategies as st

VALUES = {
    "stablelm": decoder_values(
        use_qkv_bias=st.booleans(),
        qk_layernorm=st.booleans(),
        use_parallel_residual=st.booleans(),
    )
}
