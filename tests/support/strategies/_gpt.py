"""Small configs of the GPT-like decoders, which spell the same sizes in many ways."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of

OF_GPT2 = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}

HEAD_DIMS = sizes(5)


@st.composite
def gpt_values(
    draw: st.DrawFn,
    own: Mapping[str, str],
    *,
    head_dims: st.SearchStrategy[int] = HEAD_DIMS,
    **options: st.SearchStrategy[Any],
) -> Values:
    """A small config; `own` has the config class's spelling of a key, where it has one of its own.

    `options` are keys of the family's own.
    """
    heads = draw(sizes(4))
    values = {
        "hidden_size": heads * draw(head_dims),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(4, least=0)),
        "vocab_size": draw(sizes(50)),
        "tie_word_embeddings": draw(st.booleans()),
        **{key: draw(option) for key, option in options.items()},
        **draw(labels()),
    }
    values = draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))
    respelt = draw(st.sets(st.sampled_from(sorted(own)))) if own else set()
    return {own[key] if key in respelt else key: value for key, value in values.items()}
