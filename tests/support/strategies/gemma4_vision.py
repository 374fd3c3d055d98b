from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes

VALUES = {
    "gemma4_vision": decoder_values(
        head_dim=st.sampled_from([4, 8]),
        patch_size=sizes(4),
        position_embedding_size=sizes(9),
        use_clipped_linears=st.booleans(),
        standardize=st.booleans(),
    )
}
