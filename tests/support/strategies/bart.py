from typing import Any

from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def towers(draw: st.DrawFn, *, least: int = 1, **options: st.SearchStrategy[Any]) -> Values:
    """A small config of BART or one of its relatives; `options` are keys of the family's own.

    `least` is the smallest width that the relative can be built with.
    """
    heads, other = draw(sizes(4)), draw(sizes(4))
    values = {
        "encoder_attention_heads": heads,
        "decoder_attention_heads": other,
        "d_model": heads * other * draw(sizes(least + 2, least=least)),
        "encoder_layers": draw(sizes(3, least=0)),
        "decoder_layers": draw(sizes(3, least=0)),
        "encoder_ffn_dim": draw(sizes(30)),
        "decoder_ffn_dim": draw(sizes(30)),
        "vocab_size": draw(sizes(50)),
        "max_position_embeddings": draw(sizes(20)),
        "tie_word_embeddings": draw(st.booleans()),
        **{key: draw(option) for key, option in options.items()},
        **draw(labels()),
    }
    together = frozenset({"d_model", "encoder_attention_heads", "decoder_attention_heads"})
    # The padding has to be a word of the vocabulary, and is one of the default's.
    return {"pad_token_id": None} | draw(some_of(values, together))


VALUES = {
    "bart": towers(),
    "mbart": towers(),
    "pegasus": towers(),
    "m2m_100": towers(least=4),
    "marian": towers(
        decoder_vocab_size=st.none() | sizes(50),
        share_encoder_decoder_embeddings=st.booleans(),
    ),
}
