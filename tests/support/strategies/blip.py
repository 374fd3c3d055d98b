from hypothesis import strategies as st
from support.strategies.clip import text_values, vision_values
from support.strategies.common import sizes

_TEXT = text_values(is_decoder=st.booleans(), tie_word_embeddings=st.booleans())

VALUES = {
    "blip": st.fixed_dictionaries(
        {},
        optional={
            "text_config": _TEXT,
            "vision_config": vision_values(),
            "projection_dim": sizes(9),
            "image_text_hidden_size": sizes(9),
            "tie_word_embeddings": st.booleans(),
        },
    )
}
