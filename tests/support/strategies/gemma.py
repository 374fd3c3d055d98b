from hypothesis import strategies as st
from support.strategies.common import decoder_values

VALUES = {
    "gemma": decoder_values(head_dim=st.sampled_from([2, 6]), attention_bias=st.booleans()),
    "gemma2": decoder_values(head_dim=st.sampled_from([2, 6]), attention_bias=st.booleans()),
}
