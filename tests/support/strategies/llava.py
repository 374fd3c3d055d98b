from hypothesis import strategies as st
from support.strategies.clip import VALUES as CLIP
from support.strategies.common import Values, decoder_values
from support.strategies.gpt2 import VALUES as GPT2
from support.strategies.siglip import VALUES as SIGLIP
from support.strategies.vit import VALUES as VIT


def of_type(model_type: str, values: st.SearchStrategy[Values]) -> st.SearchStrategy[Values]:
    return values.map(lambda drawn: drawn | {"model_type": model_type})


vision_towers = (
    CLIP["clip_vision_model"]
    | of_type("clip_vision_model", CLIP["clip_vision_model"])
    | of_type("siglip_vision_model", SIGLIP["siglip_vision_model"])
    | of_type("vit", VIT["vit"])
)

_LLAMA = decoder_values(attention_bias=st.booleans())
_LANGUAGE_MODELS = (
    _LLAMA
    | of_type("llama", _LLAMA)
    | of_type("mistral", decoder_values())
    | of_type("qwen2", decoder_values())
)


def _values(language_models: st.SearchStrategy[Values]) -> st.SearchStrategy[Values]:
    return st.fixed_dictionaries(
        {},
        optional={
            "vision_config": st.none() | vision_towers,
            "text_config": language_models,
            "vision_feature_layer": st.sampled_from([-2, 3, [-1], [-2, -5, 1]]),
            "multimodal_projector_bias": st.booleans(),
            "tie_word_embeddings": st.booleans(),
        },
    )


VALUES = {
    "llava": _values(_LANGUAGE_MODELS),
    # A head could not share GPT-2's embeddings, which have another name.
    "LlavaModel": _values(_LANGUAGE_MODELS | of_type("gpt2", GPT2["gpt2"])),
}
