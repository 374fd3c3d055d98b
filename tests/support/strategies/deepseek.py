from hypothesis import strategies as st
from support.strategies.common import decoder_values, sizes

_OPTIONS = {
    "moe_intermediate_size": sizes(6),
    "n_shared_experts": sizes(3, least=0),
    "num_experts_per_tok": sizes(3),
    "first_k_dense_replace": sizes(4, least=0),
    "q_lora_rank": st.none() | sizes(5),
    "kv_lora_rank": sizes(5),
    "qk_nope_head_dim": sizes(5),
    "qk_rope_head_dim": st.sampled_from([2, 4]),
    "v_head_dim": sizes(5),
    "attention_bias": st.booleans(),
}


def _spelt(experts: str, **options: st.SearchStrategy) -> st.SearchStrategy:
    return decoder_values(**{experts: sizes(3)}, **_OPTIONS, **options)


VALUES = {
    "deepseek_v2": st.one_of(
        _spelt(name, mlp_bias=st.booleans()) for name in ("n_routed_experts", "num_experts")
    ),
    "deepseek_v3": _spelt("n_routed_experts", num_nextn_predict_layers=sizes(2, least=0))
    | _spelt("num_local_experts", num_mtp_layers=sizes(2, least=0)),
}
