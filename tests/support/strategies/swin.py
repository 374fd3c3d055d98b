from hypothesis import strategies as st
from support.strategies.common import Values, handed_on, labels, sizes, some_of


@st.composite
def swin_values(draw: st.DrawFn) -> Values:
    stages = draw(sizes(3))
    image, patch = sizes(30, least=4), sizes(4)
    heads = draw(st.lists(sizes(3), min_size=stages, max_size=stages + 1))
    values = {
        "depths": draw(st.lists(sizes(2, least=0), min_size=stages, max_size=stages)),
        "num_heads": heads,
        "embed_dim": 6 * draw(sizes(4)),  # a head is at least one number wide
        "image_size": draw(image | st.lists(image, min_size=2, max_size=2)),
        "patch_size": draw(patch | st.lists(patch, min_size=2, max_size=2)),
        "num_channels": draw(sizes(4)),
        "window_size": draw(sizes(5)),
        "mlp_ratio": draw(st.sampled_from([0.29, 1, 2.6667, 4, 4.0]) | st.floats(0.125, 5)),
        "qkv_bias": draw(st.booleans()),
        "use_absolute_embeddings": draw(st.booleans()),
        "encoder_stride": draw(sizes(4)),
        **draw(handed_on(stages)),
        **draw(labels()),
    }
    stated = frozenset({"out_features", "out_indices"} & values.keys())
    together = frozenset({"depths", "num_heads", "embed_dim"}) | stated
    return draw(some_of(values, together, frozenset({"image_size", "patch_size"})))


VALUES = {"swin": swin_values()}
