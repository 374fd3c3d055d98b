from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def mpnet_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    values = {
        "hidden_size": heads * draw(sizes(5)),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(sizes(4, least=0)),
        "intermediate_size": draw(sizes(30)),
        # The padding token is number 1, whatever the config says.
        "max_position_embeddings": draw(sizes(20, least=2)),
        "vocab_size": draw(sizes(50, least=2)),
        "relative_attention_num_buckets": draw(sizes(8)),
        "tie_word_embeddings": draw(st.booleans()),
        **draw(labels()),
    }
    return draw(some_of(values, frozenset({"hidden_size", "num_attention_heads"})))


VALUES = {"mpnet": mpnet_values()}
