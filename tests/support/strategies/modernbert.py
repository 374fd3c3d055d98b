from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of

_FLAGS = (
    "norm_bias",
    "attention_bias",
    "mlp_bias",
    "decoder_bias",
    "classifier_bias",
    "tie_word_embeddings",
)


@st.composite
def modernbert_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(4))
    kept = {
        "pad_token_id": None,
        "hidden_size": 2 * heads * draw(sizes(5)),
        "num_attention_heads": heads,
    }
    rest = {
        "vocab_size": draw(sizes(50)),
        "intermediate_size": draw(sizes(30)),
        "num_hidden_layers": draw(sizes(5)),
        "global_attn_every_n_layers": draw(sizes(3)),
        **{flag: draw(st.booleans()) for flag in _FLAGS},
        **draw(labels()),
    }
    return kept | draw(some_of(rest))


VALUES = {"modernbert": modernbert_values()}
