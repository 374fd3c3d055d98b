from hypothesis import strategies as st
from support.strategies.common import decoder_values, uneven_heads

_OPTIONS = {**uneven_heads(), "attention_bias": st.booleans()}
_EVEN = {key: option for key, option in _OPTIONS.items() if key != "hidden_size"}

VALUES = {
    "cohere": decoder_values(**_OPTIONS, use_qk_norm=st.sampled_from([None, False, True])),
    "cohere2": decoder_values(**_EVEN),
}
