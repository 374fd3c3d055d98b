from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import sizes

VALUES = {
    "opt": gpt_values(
        {},
        ffn_dim=sizes(30),
        max_position_embeddings=sizes(20),
        word_embed_proj_dim=st.none() | sizes(12),
        do_layer_norm_before=st.booleans(),
        _remove_final_layer_norm=st.booleans(),
        enable_bias=st.booleans(),
        layer_norm_elementwise_affine=st.booleans(),
    ).map(lambda values: values | {"pad_token_id": 0})  # by default 1, which needs two tokens
}
