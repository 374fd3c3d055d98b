from hypothesis import strategies as st
from support.strategies.common import Values, sizes, some_of


@st.composite
def audio_values(draw: st.DrawFn) -> Values:
    values = {
        "hidden_size": draw(sizes(20, least=4)),
        "num_attention_heads": draw(sizes(4)),
        "num_hidden_layers": draw(sizes(3, least=0)),
        "subsampling_conv_channels": draw(st.lists(sizes(9), min_size=2, max_size=2)),
        "conv_kernel_size": draw(sizes(5)),
        "use_clipped_linears": draw(st.booleans()),
        "output_proj_dims": draw(sizes(9)),
    }
    return draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))


VALUES = {"gemma4_audio": audio_values()}
