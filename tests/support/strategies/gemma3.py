from hypothesis import strategies as st
from support.strategies.clip import VALUES as CLIP
from support.strategies.common import Values, decoder_values, labels, with_layer_types
from support.strategies.llava import of_type
from support.strategies.siglip import VALUES as SIGLIP

_TEXT = with_layer_types(
    decoder_values(head_dim=st.sampled_from([2, 6]), attention_bias=st.booleans()),
    ("sliding_attention", "full_attention"),
)
_VISION = (
    SIGLIP["siglip_vision_model"]
    | of_type("siglip_vision_model", SIGLIP["siglip_vision_model"])
    | of_type("clip_vision_model", CLIP["clip_vision_model"])
)


@st.composite
def gemma3_values(draw: st.DrawFn) -> Values:
    texts = _TEXT | of_type("gemma3_text", _TEXT)
    parts = st.fixed_dictionaries(
        {},
        optional={
            "text_config": st.none() | texts,
            "vision_config": st.none() | _VISION,
            "tie_word_embeddings": st.booleans(),
        },
    )
    return draw(parts) | draw(labels())


VALUES = {"gemma3_text": _TEXT, "gemma3": gemma3_values()}
