from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of

_DECODING = st.sampled_from([(None, None), (False, False), (True, None), (True, True)])


@st.composite
def esm_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    is_decoder, crossing = draw(_DECODING)
    values = {
        "hidden_size": heads * draw(sizes(6)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(4, least=0)),
        "intermediate_size": draw(sizes(30)),
        "max_position_embeddings": draw(sizes(20)),
        "position_embedding_type": draw(st.sampled_from(["absolute", "rotary", "none", None])),
        "emb_layer_norm_before": draw(st.none() | st.booleans()),
        "is_decoder": is_decoder,
        "add_cross_attention": crossing,
        "tie_word_embeddings": draw(st.booleans()),
        **draw(labels()),
    }
    together = ({"hidden_size", "num_attention_heads"}, {"is_decoder", "add_cross_attention"})
    rest = draw(some_of(values, *map(frozenset, together)))
    return {"vocab_size": draw(sizes(50))} | rest


LEAST = {"esm": {"vocab_size": 33}}
VALUES = {"esm": esm_values()}
