from hypothesis import strategies as st
from support.strategies.common import Values, sizes, some_of
from support.strategies.sam_vision import vision_values


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


VALUES = {"sam": sam_values()}
