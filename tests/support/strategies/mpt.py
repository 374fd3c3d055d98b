from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import sizes

_OWN = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}

VALUES = {
    "mpt": gpt_values(
        _OWN,
        expansion_ratio=sizes(4),
        no_bias=st.booleans(),
        learned_pos_emb=st.booleans(),
        max_seq_len=sizes(20),
        attn_config=st.fixed_dictionaries({"alibi": st.booleans(), "qk_ln": st.booleans()}),
    )
}
