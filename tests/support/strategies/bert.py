from typing import Any

from hypothesis import strategies as st
from support.bert_configs import bert_values
from support.strategies.common import Values, some_of


@st.composite
def encoder_values(draw: st.DrawFn, **options: st.SearchStrategy[Any]) -> Values:
    """A small config of a BERT-like encoder; `options` are keys of the family's own."""
    own = {key: draw(option) for key, option in options.items()}
    return draw(bert_values()) | (draw(some_of(own)) if own else {})


VALUES = {"bert": encoder_values()}
