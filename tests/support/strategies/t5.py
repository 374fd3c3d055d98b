from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def t5_values(draw: st.DrawFn) -> Values:
    values = {
        "vocab_size": draw(sizes(50)),
        "d_model": draw(sizes(12)),
        "d_kv": draw(sizes(5)),
        "d_ff": draw(sizes(20)),
        "num_layers": draw(sizes(3, least=0)),
        "num_decoder_layers": draw(st.none() | sizes(3, least=0)),
        "num_heads": draw(sizes(3)),
        "relative_attention_num_buckets": draw(sizes(8)),
        "feed_forward_proj": draw(st.sampled_from(["relu", "gated-gelu", "gated-silu"])),
        "is_decoder": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        **draw(labels()),
    }
    return draw(some_of(values))


VALUES = {"t5": t5_values(), "mt5": t5_values()}
