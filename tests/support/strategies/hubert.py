from hypothesis import strategies as st
from support.strategies.wav2vec2 import speech_values

VALUES = {
    "hubert": speech_values(feat_proj_layer_norm=st.booleans(), conv_pos_batch_norm=st.booleans())
}
