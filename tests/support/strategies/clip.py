from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def tower_values(draw: st.DrawFn, **options: st.SearchStrategy[object]) -> Values:
    """What a text tower and a vision tower have in common, and `options` of the one drawn."""
    heads = draw(sizes(4))
    values = {
        "hidden_size": heads * draw(sizes(5)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(3, least=0)),
        "intermediate_size": draw(sizes(30)),
        **{key: draw(option) for key, option in options.items()},
    }
    together = frozenset({"hidden_size", "num_attention_heads"})
    return draw(some_of(values, together, frozenset({"image_size", "patch_size"})))


def text_values(**options: st.SearchStrategy[object]) -> st.SearchStrategy[Values]:
    return tower_values(vocab_size=sizes(50), max_position_embeddings=sizes(20), **options)


def vision_values(**options: st.SearchStrategy[object]) -> st.SearchStrategy[Values]:
    return tower_values(image_size=sizes(30, least=4), patch_size=sizes(5), **options)


def _towers(text: st.SearchStrategy[Values], vision: st.SearchStrategy[Values]):
    older = st.fixed_dictionaries(
        {},
        optional={"text_config_dict": st.none() | text, "vision_config_dict": st.none() | vision},
    )
    projection = st.fixed_dictionaries({}, optional={"projection_dim": sizes(9)})
    return st.builds(
        lambda *parts: {key: value for part in parts for key, value in part.items()},
        older,
        projection,
        st.fixed_dictionaries({}, optional={"text_config": text, "vision_config": vision}),
        labels(),
    )


_TEXT = text_values(projection_dim=sizes(9))
_VISION = vision_values(num_channels=sizes(4), projection_dim=sizes(9))

VALUES = {
    "clip": _towers(_TEXT, _VISION),
    "clip_text_model": _TEXT,
    "clip_vision_model": _VISION,
}
