from hypothesis import strategies as st
from support.strategies.common import decoder_values

VALUES = {"qwen2": decoder_values(use_sliding_window=st.booleans())}
LEFT_OUT = {
    "JevForDecision": "it is built from a config of its own type, jev, whatever it is given"
}
