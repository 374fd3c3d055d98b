from typing import Any

from hypothesis import strategies as st
from support.strategies.common import Values, decoder_values, sizes, some_of

_SLIDING, _FULL = "sliding_attention", "full_attention"


_EXPERTS = st.fixed_dictionaries(
    {
        "enable_moe_block": st.booleans(),
        "num_experts": sizes(3),
        "moe_intermediate_size": sizes(6),
        "top_k_experts": st.none() | sizes(2),
    }
)


@st.composite
def text_values(draw: st.DrawFn) -> Values:
    """A small decoder whose last layers may take keys and values from one of each kind before."""
    values = draw(
        decoder_values(
            head_dim=st.sampled_from([4, 8]),
            global_head_dim=st.sampled_from([4, 8, 16]),
            num_global_key_value_heads=st.sampled_from([None, 1]),
            attention_bias=st.booleans(),
            attention_k_eq_v=st.booleans(),
            use_double_wide_mlp=st.booleans(),
            vocab_size_per_layer_input=sizes(9),
            hidden_size_per_layer_input=sizes(4, least=0),
        )
    )
    return values | draw(st.just({}) | _EXPERTS) | draw(layers(values["num_hidden_layers"]))


@st.composite
def layers(draw: st.DrawFn, count: int) -> dict[str, Any]:
    """Of which kind each layer is, how many share, and what is said of single ones."""
    kinds = draw(
        st.none() | st.lists(st.sampled_from([_SLIDING, _FULL]), min_size=count, max_size=count)
    )
    ends = [*(kinds or [_SLIDING] * count)[:-1], _FULL][:count]  # the last one sees far
    owners = [n for n in range(1, count + 1) if set(ends[:n]) == set(ends)] or [count]
    one = st.fixed_dictionaries(
        {}, optional={"head_dim": st.sampled_from([4, 16]), "num_key_value_heads": st.just(1)}
    )
    by_kind = st.fixed_dictionaries({_SLIDING: one, _FULL: one})  # alike, or nothing can rotate
    digits = draw(st.sampled_from([1, 2]))  # transformers writes as many as the last layer has
    single = by_kind.map(
        lambda said: {str(n).zfill(digits): said[kind] for n, kind in enumerate(ends)}
    )
    said = st.fixed_dictionaries({}, optional={"per_layer_config": single})
    return {
        "layer_types": kinds,
        "num_kv_shared_layers": count - draw(st.sampled_from(owners)),
        **draw(said),
    }


VISION = decoder_values(
    head_dim=st.sampled_from([4, 8]),
    patch_size=sizes(4),
    position_embedding_size=sizes(9),
    use_clipped_linears=st.booleans(),
    standardize=st.booleans(),
)


@st.composite
def gemma4_values(draw: st.DrawFn) -> Values:
    parts = {
        "text_config": text_values(),
        "vision_config": st.none() | VISION,
        "audio_config": st.none() | audio_values(),
        "tie_word_embeddings": st.booleans(),
    }
    return draw(st.fixed_dictionaries({}, optional=parts))


@st.composite
def audio_values(draw: st.DrawFn) -> Values:
    values = {
        "hidden_size": draw(sizes(20, least=4)),
        "num_attention_heads": draw(sizes(4)),
        "num_hidden_layers": draw(sizes(3, least=0)),
        "subsampling_conv_channels": draw(st.lists(sizes(9), min_size=2, max_size=2)),
        "conv_kernel_size": draw(sizes(5)),
        "use_clipped_linears": draw(st.booleans()),
        "output_proj_dims": draw(sizes(9)),
    }
    return draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))


VALUES = {
    "gemma4": gemma4_values(),
    "gemma4_audio": audio_values(),
    "gemma4_text": text_values(),
    "gemma4_vision": VISION,
}
LEFT_OUT = {
    "gemma4": {
        "JevForDecision": "it is built from a config of its own type, jev, whatever it is given"
    },
    "gemma4_audio": {},
    "gemma4_text": {},
    "gemma4_vision": {},
}
