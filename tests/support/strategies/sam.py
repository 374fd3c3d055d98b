from hypothesis import strategies as st
from support.strategies.common import Values, sizes, some_of


@st.composite
def prompt_values(draw: st.DrawFn) -> Values:
    values = {
        "hidden_size": draw(sizes(9)),
        "mask_input_channels": draw(sizes(14, least=4)),
        "num_point_embeddings": draw(sizes(5, least=0)),
    }
    return draw(some_of(values))


@st.composite
def mask_values(draw: st.DrawFn) -> Values:
    heads, rate = draw(sizes(3)), draw(sizes(3))
    values = {
        "hidden_size": 2 * heads * rate * draw(sizes(3, least=2)),
        "num_attention_heads": heads,
        "attention_downsample_rate": rate,
        "mlp_dim": draw(sizes(9)),
        "num_hidden_layers": draw(sizes(3, least=0)),
        "num_multimask_outputs": draw(sizes(3)),
        "iou_head_depth": draw(sizes(5)),
        "iou_head_hidden_dim": draw(sizes(9)),
    }
    together = {"hidden_size", "num_attention_heads", "attention_downsample_rate"}
    return draw(some_of(values, frozenset(together)))


@st.composite
def sam_values(draw: st.DrawFn) -> Values:
    values = {
        "vision_config": draw(vision_values()),
        "prompt_encoder_config": draw(st.none() | prompt_values()),
        "mask_decoder_config": draw(st.none() | mask_values()),
        "tie_word_embeddings": draw(st.booleans()),
    }
    return draw(some_of(values))


@st.composite
def vision_values(draw: st.DrawFn) -> Values:
    heads, layers = draw(sizes(3)), draw(sizes(3, least=0))
    values = {
        "hidden_size": heads * draw(sizes(5)) + draw(sizes(heads, least=0)),
        "output_channels": draw(sizes(9)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_channels": draw(sizes(4)),
        "image_size": draw(sizes(30, least=4)),
        "patch_size": draw(sizes(4)),
        "qkv_bias": draw(st.booleans()),
        "mlp_ratio": draw(st.sampled_from([0.29, 2.6667, 4.0]) | st.floats(0.125, 5)),
        "use_abs_pos": draw(st.booleans()),
        "use_rel_pos": draw(st.booleans()),
        "window_size": draw(sizes(4, least=0)),
        "global_attn_indexes": draw(st.lists(sizes(layers + 1, least=0), max_size=3)),
        "num_pos_feats": draw(sizes(6)),
        "mlp_dim": draw(st.none() | sizes(9)),
    }
    found = draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))
    if "patch_size" not in found:  # 16: an image of less has no patch, and no class can be built
        found.pop("image_size", None)
    return found


VALUES = {"sam": sam_values(), "sam_vision_model": vision_values()}
