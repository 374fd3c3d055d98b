from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes

VALUES = {
    "starcoder2": decoder_values(
        hidden_size=sizes(40, least=8),
        head_dim=st.sampled_from([None, 2, 6]),
        use_bias=st.booleans(),
    )
}
