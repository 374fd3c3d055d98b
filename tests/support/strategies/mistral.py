from analytic.strategies.common import decoder_values
from hypothesis import strategies as st

VALUES = {"mistral": decoder_values(head_dim=st.sampled_from([None, 2, 6]))}
