from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def dinov2_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    image, patch = sizes(30, least=4), sizes(4)
    values = {
        "hidden_size": heads * draw(sizes(9)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(3, least=0)),
        "mlp_ratio": draw(sizes(5)),
        "image_size": draw(image | st.lists(image, min_size=2, max_size=2)),
        "patch_size": draw(patch | st.lists(patch, min_size=2, max_size=2)),
        "num_channels": draw(sizes(4)),
        "qkv_bias": draw(st.booleans()),
        "use_swiglu_ffn": draw(st.booleans()),
        "use_mask_token": draw(st.booleans()),
        **draw(labels()),
    }
    together = frozenset({"hidden_size", "num_attention_heads"})
    return draw(some_of(values, together, frozenset({"image_size", "patch_size"})))


@st.composite
def with_registers_values(draw: st.DrawFn) -> Values:
    values = draw(dinov2_values())
    values.pop("use_mask_token", None)
    return {**values, **draw(st.fixed_dictionaries({}, optional={"num_register_tokens": sizes(5)}))}


VALUES = {"dinov2": dinov2_values(), "dinov2_with_registers": with_registers_values()}
