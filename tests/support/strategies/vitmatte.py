from hypothesis import strategies as st
from support.strategies.common import Values, handed_on, sizes, some_of

# transformers cannot build the default, because it adds a tuple to a list.
LEAST = {"vitmatte": {"fusion_hidden_sizes": [256, 128, 64, 32]}}


@st.composite
def vitdet_values(draw: st.DrawFn) -> Values:
    heads, layers, patch = draw(sizes(3)), draw(sizes(4)), draw(sizes(4))
    indices = st.lists(sizes(layers, least=0), max_size=3)
    values = {
        "hidden_size": heads * draw(sizes(5, least=2)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "mlp_ratio": draw(sizes(4)),
        "hidden_act": draw(st.sampled_from(["gelu", "relu"])),
        "image_size": draw(sizes(30, least=4) | st.just([12, 20])),
        "pretrain_image_size": draw(sizes(30, least=4) | st.just([20, 12])),
        "patch_size": draw(st.sampled_from([patch, [patch, 3]])),
        "num_channels": draw(sizes(5)),
        "qkv_bias": draw(st.booleans()),
        "window_block_indices": draw(indices),
        "residual_block_indices": draw(indices),
        "use_absolute_position_embeddings": draw(st.booleans()),
        "use_relative_position_embeddings": draw(st.booleans()),
        "window_size": draw(sizes(4, least=0)),
        **draw(handed_on(layers)),
    }
    heads_and_width = frozenset({"hidden_size", "num_attention_heads"})
    outputs = frozenset({"num_hidden_layers", "out_features", "out_indices"} & values.keys())
    images = frozenset({"image_size", "pretrain_image_size", "patch_size"})
    return draw(some_of(values, heads_and_width, outputs, images))


@st.composite
def _values(draw: st.DrawFn) -> Values:
    count = draw(sizes(3))
    values = {
        "backbone_config": {"model_type": "vitdet"} | draw(vitdet_values()),
        "hidden_size": draw(sizes(9)),
        "convstream_hidden_sizes": [draw(sizes(9)) for _ in range(count)],
        "fusion_hidden_sizes": [draw(sizes(9)) for _ in range(count + 1)],
    }
    together = frozenset({"convstream_hidden_sizes", "fusion_hidden_sizes"})
    return LEAST["vitmatte"] | draw(some_of(values, together))


VALUES = {"vitdet": vitdet_values(), "vitmatte": _values()}
