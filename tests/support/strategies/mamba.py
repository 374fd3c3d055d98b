from hypothesis import strategies as st
from support.strategies._gpt import gpt_values
from support.strategies.common import Values, sizes, some_of

_SHARED = {
    "state_size": sizes(6),
    "conv_kernel": sizes(5),
    "use_bias": st.booleans(),
    "use_conv_bias": st.booleans(),
}


@st.composite
def mamba2_values(draw: st.DrawFn) -> Values:
    heads, width, expand = draw(sizes(4)), draw(sizes(4)), draw(sizes(3))
    wide = {"num_heads": heads * expand, "head_dim": width, "expand": expand}
    wide |= {"hidden_size": heads * width}
    rest = draw(gpt_values({}, n_groups=sizes(3), **_SHARED))
    rest = {key: value for key, value in rest.items() if key not in wide}
    return draw(some_of(rest | wide, frozenset(wide)))


VALUES = {
    "mamba": gpt_values(
        {},
        expand=sizes(3),
        time_step_rank=st.just("auto") | sizes(6),
        **_SHARED,
    )
    | gpt_values({}, intermediate_size=sizes(30), **_SHARED),
    "mamba2": mamba2_values(),
}
