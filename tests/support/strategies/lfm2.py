from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes, with_layer_types

TYPES = ("conv", "full_attention")


OPTIONS = {
    "head_dim": st.sampled_from([2, 6]),
    "conv_bias": st.booleans(),
    "conv_L_cache": sizes(4),
}


_ADJUSTED = {
    "block_multiple_of": sizes(9),
    "block_ffn_dim_multiplier": st.floats(0.25, 3) | sizes(3),
    "block_auto_adjust_ff_dim": st.booleans(),
    "full_attn_idxs": st.none() | st.lists(sizes(4, least=0)),
}


_OLDER = {"tie_embedding": st.booleans(), "block_ff_dim": sizes(40)}


_OPTIONS = {
    **OPTIONS,
    "moe_intermediate_size": sizes(6),
    "num_dense_layers": sizes(4, least=0),
    "num_experts": sizes(3),
    "num_experts_per_tok": sizes(2),
    "use_expert_bias": st.booleans(),
    "tie_embedding": st.booleans(),
}


LEAST = {"lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16}}


VALUES = {
    "lfm2": with_layer_types(
        decoder_values(**OPTIONS, **_ADJUSTED) | decoder_values(**OPTIONS, **_ADJUSTED, **_OLDER),
        TYPES,
    ),
    "lfm2_moe": with_layer_types(decoder_values(**_OPTIONS), TYPES, null=False),
}
