from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of

_SYNONYMS = {
    "dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
}


@st.composite
def distilbert_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    values = {
        "dim": heads * draw(sizes(5)),
        "n_heads": heads,
        "n_layers": draw(sizes(4, least=0)),
        "hidden_dim": draw(sizes(30)),
        "max_position_embeddings": draw(sizes(20)),
        "vocab_size": draw(sizes(50)),
        "tie_word_embeddings": draw(st.booleans()),
        "sinusoidal_pos_embds": draw(st.booleans()),
        **draw(labels()),
    }
    values = draw(some_of(values, frozenset({"dim", "n_heads"})))
    respelt = draw(st.sets(st.sampled_from(sorted(_SYNONYMS))))
    return {_SYNONYMS[k] if k in respelt else k: value for k, value in values.items()}


def _two_labels(values: Values) -> Values:
    return {**values, "num_labels": 2}


VALUES = {
    "distilbert": distilbert_values(),
    "DistilBertForQuestionAnswering": distilbert_values().map(_two_labels),
}
