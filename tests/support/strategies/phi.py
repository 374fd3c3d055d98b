from analytic.strategies.common import decoder_values, uneven_heads
from hypothesis import strategies as st

VALUES = {"phi": decoder_values(**uneven_heads(), qk_layernorm=st.booleans())}
