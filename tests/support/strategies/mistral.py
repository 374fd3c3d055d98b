from hypothesis import strategies as st
from support.strategies.common import decoder_values

VALUES = {"mistral": decoder_values(head_dim=st.sampled_from([None, 2, 6]))}
