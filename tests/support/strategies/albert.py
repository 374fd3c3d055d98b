from hypothesis import strategies as st
from support.strategies.bert import encoder_values
from support.strategies.common import Values, sizes


@st.composite
def albert_values(draw: st.DrawFn) -> Values:
    """A small config, half of the time with a width that the heads do not divide."""
    values = draw(
        encoder_values(
            embedding_size=sizes(12),
            num_hidden_groups=sizes(3, least=0),
            inner_group_num=sizes(3, least=0),
        )
    )
    heads, rest = draw(sizes(4)), draw(sizes(3, least=0))
    width = heads * draw(sizes(3)) + min(rest, heads - 1)
    uneven = {"num_attention_heads": heads, "hidden_size": width}
    return values | draw(st.sampled_from([{}, uneven]))


VALUES = {"albert": albert_values()}
