from hypothesis import strategies as st
from support.strategies.common import Values, sizes, some_of

BIASES = ("query_bias", "key_bias", "value_bias", "proj_bias", "mlp_bias")


@st.composite
def dinov3_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    patch = sizes(4)
    values = {
        "hidden_size": 4 * heads * draw(sizes(5)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(3, least=0)),
        "intermediate_size": draw(sizes(30)),
        "patch_size": draw(patch | st.lists(patch, min_size=2, max_size=2)),
        "num_channels": draw(sizes(4)),
        "use_gated_mlp": draw(st.booleans()),
        "num_register_tokens": draw(sizes(5, least=0)),
        **{bias: draw(st.booleans()) for bias in BIASES},
    }
    return draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))


VALUES = {"dinov3_vit": dinov3_values()}
