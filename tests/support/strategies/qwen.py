from hypothesis import strategies as st
from support.strategies.common import decoder_values

VALUES = {
    "qwen2": decoder_values(use_sliding_window=st.booleans()),
    "qwen3": decoder_values(head_dim=st.sampled_from([2, 6]), attention_bias=st.booleans()),
}
LEFT_OUT = {
    "qwen2": {
        "JevForDecision": "it is built from a config of its own type, jev, whatever it is given"
    },
    "qwen3": {},
}
