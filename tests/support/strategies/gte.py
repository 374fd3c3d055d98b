from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def gte_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    values = {
        "hidden_size": 2 * heads * draw(sizes(5)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(4, least=0)),
        "intermediate_size": draw(sizes(30)),
        "vocab_size": draw(sizes(50, least=2)),  # the padding token is number 1
        "type_vocab_size": draw(sizes(2, least=0)),
        "tie_word_embeddings": draw(st.booleans()),
        **draw(labels()),
    }
    return draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))


VALUES = {"gte": gte_values()}
