from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def vit_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    image, patch = sizes(30, least=4), sizes(4)
    values = {
        "hidden_size": heads * draw(sizes(5)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(3, least=0)),
        "intermediate_size": draw(sizes(30)),
        "image_size": draw(image | st.lists(image, min_size=2, max_size=2)),
        "patch_size": draw(patch | st.lists(patch, min_size=2, max_size=2)),
        "num_channels": draw(sizes(4)),
        "qkv_bias": draw(st.booleans()),
        "encoder_stride": draw(sizes(4)),
        "pooler_output_size": draw(st.none() | sizes(6)),
        **draw(labels()),
    }
    together = frozenset({"hidden_size", "num_attention_heads"})
    return draw(some_of(values, together, frozenset({"image_size", "patch_size"})))


VALUES = {"vit": vit_values(), "deit": vit_values()}
