from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes

_OPTIONS = {"head_dim": st.sampled_from([None, 2, 6]), "num_experts_per_tok": sizes(2)}


VALUES = {
    "mistral": decoder_values(head_dim=st.sampled_from([None, 2, 6])),
    "mixtral": decoder_values(num_local_experts=sizes(3), **_OPTIONS)
    | decoder_values(num_experts=sizes(3), **_OPTIONS),
}
