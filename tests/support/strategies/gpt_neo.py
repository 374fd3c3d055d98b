from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import Values, sizes

_OWN = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}


def _consistent(values: Values) -> Values:
    """With the kinds of attention for as many layers as there are, whose default is for 24."""
    layers = values.get("num_layers", values.get("num_hidden_layers", 24))
    kinds = [[["global", "local"], layers // 2], [["local"], layers % 2]]
    return values | {"attention_types": kinds}


LEAST = {"gpt_neo": {}}  # all layers for every class: its default attention_types are for 24
VALUES = {
    "gpt_neo": gpt_values(
        _OWN,
        max_position_embeddings=sizes(20),
        intermediate_size=st.none() | sizes(30),
    ).map(_consistent)
}
