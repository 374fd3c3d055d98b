from hypothesis import strategies as st
from support.strategies._gpt import OF_GPT2, gpt_values
from support.strategies.common import sizes

_OPTIONS = {"max_position_embeddings": sizes(20), "n_inner": st.none() | sizes(30)}

VALUES = {
    "gpt_bigcode": gpt_values(OF_GPT2, multi_query=st.booleans(), **_OPTIONS)
    | gpt_values(OF_GPT2, **_OPTIONS).map(
        lambda values: values | {"multi_query": False, "add_cross_attention": True}
    )
}
