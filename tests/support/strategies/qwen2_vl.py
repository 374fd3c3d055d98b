from typing import Any

from hypothesis import strategies as st
from support.strategies.common import Values, decoder_values, sizes, some_of


@st.composite
def visual_values(draw: st.DrawFn, width: str, **options: st.SearchStrategy[Any]) -> Values:
    """A small tower, which may give its depth and its heads the names of other families."""
    depth, heads = draw(
        st.sampled_from([("depth", "num_heads"), ("num_hidden_layers", "num_attention_heads")])
    )
    number = draw(sizes(3))
    values = {
        depth: draw(sizes(3, least=0)),
        heads: number,
        width: 4 * number * draw(sizes(3)),
        "in_channels": draw(sizes(4)),
        "patch_size": draw(sizes(4)),
        "temporal_patch_size": draw(sizes(3)),
        "spatial_merge_size": draw(sizes(3)),
        **{key: draw(option) for key, option in options.items()},
    }
    return draw(some_of(values, frozenset({heads, width})))


def vlm_values(
    text: st.SearchStrategy[Values], vision: st.SearchStrategy[Values]
) -> st.SearchStrategy[Values]:
    return st.fixed_dictionaries(
        {},
        optional={
            "text_config": text,
            "vision_config": vision,
            "tie_word_embeddings": st.booleans(),
        },
    )


def flat_or_not(
    text: st.SearchStrategy[Values], vision: st.SearchStrategy[Values]
) -> st.SearchStrategy[Values]:
    """Older configs have the keys of the language model on the outside."""
    tower = st.fixed_dictionaries({}, optional={"vision_config": vision, "text_config": st.none()})
    flat = st.builds(lambda inner, outer: inner | outer, text, tower)
    return vlm_values(text, vision) | flat


text_values = decoder_values()


_VISION = visual_values(
    "hidden_size",
    intermediate_size=sizes(9),
    out_hidden_size=sizes(9),
)


VALUES = {
    "qwen2_vl": flat_or_not(
        text_values,
        visual_values("embed_dim", hidden_size=sizes(9), mlp_ratio=sizes(3)),
    ),
    "qwen2_vl_text": text_values,
    "qwen2_5_vl": flat_or_not(text_values, _VISION),
    "qwen2_5_vl_text": text_values,
}
