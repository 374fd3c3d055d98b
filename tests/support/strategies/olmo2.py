from hypothesis import strategies as st
from support.strategies.common import decoder_values, uneven_heads

VALUES = {"olmo2": decoder_values(**uneven_heads(), attention_bias=st.booleans())}
