from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import sizes

_FLAG = st.none() | st.booleans()

VALUES = {
    "falcon": gpt_values(
        {"hidden_size": "n_embed"},
        head_dims=st.sampled_from([1, 2, 4, 6]),  # halves of a head turn, of an odd one they cannot
        num_kv_heads=st.none() | sizes(4),
        ffn_hidden_size=st.none() | sizes(30),
        num_ln_in_parallel_attn=st.none() | sizes(2),
        new_decoder_architecture=_FLAG,
        multi_query=_FLAG,
        parallel_attn=_FLAG,
        bias=st.booleans(),
        alibi=_FLAG,
    )
}
