from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes, with_layer_types
from support.strategies.lfm2 import OPTIONS, TYPES

_OPTIONS = {
    **OPTIONS,
    "moe_intermediate_size": sizes(6),
    "num_dense_layers": sizes(4, least=0),
    "num_experts": sizes(3),
    "num_experts_per_tok": sizes(2),
    "use_expert_bias": st.booleans(),
    "tie_embedding": st.booleans(),
}

VALUES = {"lfm2_moe": with_layer_types(decoder_values(**_OPTIONS), TYPES, null=False)}
LEAST = {"lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16}}
