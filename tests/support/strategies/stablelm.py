from hypothesis import strategies as st
from support.strategies.common import decoder_values

VALUES = {
    "stablelm": decoder_values(
        use_qkv_bias=st.booleans(),
        qk_layernorm=st.booleans(),
        use_parallel_residual=st.booleans(),
    )
}
