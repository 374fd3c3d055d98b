from hypothesis import strategies as st
from support.strategies.bart import VALUES as BART
from support.strategies.bert import VALUES as BERT
from support.strategies.common import Values, sizes, some_of
from support.strategies.llava import of_type


@st.composite
def _dpr_values(draw: st.DrawFn) -> Values:
    heads = draw(sizes(3))
    values = {
        "vocab_size": draw(sizes(50)),
        "hidden_size": heads * draw(sizes(5)),
        "num_hidden_layers": draw(sizes(3, least=0)),
        "num_attention_heads": heads,
        "intermediate_size": draw(sizes(30)),
        "max_position_embeddings": draw(sizes(20)),
        "type_vocab_size": draw(sizes(3)),
        "projection_dim": draw(sizes(4, least=0)),
    }
    together = frozenset({"hidden_size", "num_attention_heads"})
    return {"pad_token_id": None} | draw(some_of(values, together))


# What a part has of the keys that are not drawn: the defaults would take seconds to build.
_BERT = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "vocab_size": 40}
_BART = {
    "d_model": 12,
    "decoder_attention_heads": 3,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_layers": 2,
    "vocab_size": 40,
}


@st.composite
def _values(draw: st.DrawFn) -> Values:
    dpr, bart = _dpr_values(), BART["bart"]
    encoder = draw(dpr | of_type("dpr", dpr) | of_type("bert", BERT["bert"]))
    kinds = [of_type(name, BART[name]) for name in ("bart", "mbart", "pegasus")]
    generator = draw(st.one_of(bart, *kinds))
    return {"question_encoder": _BERT | encoder, "generator": _BART | generator}


VALUES = {"rag": _values()}
