from hypothesis import strategies as st
from support.strategies.common import decoder_values, uneven_heads

VALUES = {"phi": decoder_values(**uneven_heads(), qk_layernorm=st.booleans())}
