from hypothesis import strategies as st
from support.strategies.bart import towers
from support.strategies.common import sizes

VALUES = {
    "whisper": towers(
        num_mel_bins=sizes(6),
        max_source_positions=sizes(9),
        max_target_positions=sizes(9),
        use_weighted_layer_sum=st.booleans(),
        classifier_proj_size=sizes(5),
    )
}
