from hypothesis import strategies as st
from support.strategies.common import sizes
from support.strategies.gemma import VALUES as GEMMA
from support.strategies.llava import of_type
from support.strategies.siglip import VALUES as SIGLIP

_SIGLIP = SIGLIP["siglip_vision_model"]

VALUES = {
    "paligemma": st.fixed_dictionaries(
        {},
        optional={
            "vision_config": st.none() | _SIGLIP | of_type("siglip_vision_model", _SIGLIP),
            "text_config": st.none() | GEMMA["gemma"] | of_type("gemma", GEMMA["gemma"]),
            "projection_dim": sizes(9),
            "tie_word_embeddings": st.booleans(),
        },
    )
}
