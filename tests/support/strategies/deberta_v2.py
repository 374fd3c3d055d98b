from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of

_KINDS = st.sampled_from([None, "c2p", "p2c|C2P", "c2p | p2c", ["p2c"], ["p2c", "c2p"], []])


@st.composite
def deberta_values(draw: st.DrawFn) -> Values:
    heads, groups = draw(sizes(4)), draw(sizes(3))
    absent = st.integers(-1, 0)
    values = {
        "hidden_size": heads * groups * draw(sizes(4)),
        "num_attention_heads": heads,
        "conv_groups": groups,
        "attention_head_size": draw(sizes(6)),
        "num_hidden_layers": draw(sizes(3, least=0)),
        "intermediate_size": draw(sizes(30)),
        "vocab_size": draw(sizes(50)),
        "embedding_size": draw(sizes(12)),
        "pooler_hidden_size": draw(sizes(9)),
        "max_position_embeddings": draw(sizes(20)),
        "type_vocab_size": draw(sizes(3, least=0)),
        "position_biased_input": draw(st.booleans()),
        "relative_attention": draw(st.booleans()),
        "pos_att_type": draw(_KINDS),
        "share_att_key": draw(st.booleans()),
        "max_relative_positions": draw(absent | sizes(9)),
        "position_buckets": draw(absent | sizes(9)),
        "norm_rel_ebd": draw(st.sampled_from(["none", "layer_norm", "NONE | Layer_Norm"])),
        "conv_kernel_size": draw(absent | sizes(5)),
        "legacy": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        **draw(labels()),
    }
    kept = {"hidden_size", "num_attention_heads", "conv_groups"}
    rest = {key: value for key, value in values.items() if key not in kept}
    return {"pad_token_id": None} | {key: values[key] for key in kept} | draw(some_of(rest))


VALUES = {"deberta-v2": deberta_values()}
