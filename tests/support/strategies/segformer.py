from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of


@st.composite
def segformer_values(draw: st.DrawFn) -> Values:
    stages = draw(sizes(3))

    def by_stage(each: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(each, min_size=stages, max_size=stages))

    heads = by_stage(sizes(3))
    values = {
        "num_channels": draw(sizes(4)),
        "num_encoder_blocks": stages,
        "depths": by_stage(sizes(2, least=0)),
        "sr_ratios": by_stage(sizes(3)),
        "hidden_sizes": [number * draw(sizes(4)) for number in heads],
        "patch_sizes": by_stage(sizes(4)),
        "strides": by_stage(sizes(4)),
        "num_attention_heads": heads,
        "mlp_ratios": by_stage(sizes(4)),
        "decoder_hidden_size": draw(sizes(12)),
        "reshape_last_stage": draw(st.booleans()),
        **draw(labels()),
    }
    alone = {"num_channels", "decoder_hidden_size", "reshape_last_stage", "num_labels", "id2label"}
    return draw(some_of(values, frozenset(values.keys() - alone)))


VALUES = {"segformer": segformer_values()}
