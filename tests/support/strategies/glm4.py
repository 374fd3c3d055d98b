from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes

_OPTIONS = {
    "hidden_size": sizes(40, least=8),
    "head_dim": st.sampled_from([2, 6]),
    "attention_bias": st.booleans(),
    "use_qk_norm": st.booleans(),
    "moe_intermediate_size": sizes(9),
    "n_shared_experts": sizes(2),
    "num_experts_per_tok": sizes(3),
    "first_k_dense_replace": sizes(5, least=0),
}


VALUES = {
    "glm4": decoder_values(head_dim=st.sampled_from([2, 6]), attention_bias=st.booleans()),
    "glm4_moe": decoder_values(
        n_routed_experts=sizes(3), num_nextn_predict_layers=sizes(2, least=0), **_OPTIONS
    )
    | decoder_values(num_local_experts=sizes(3), num_mtp_layers=sizes(2, least=0), **_OPTIONS),
}
