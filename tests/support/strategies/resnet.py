from hypothesis import strategies as st
from support.strategies.common import Values, handed_on, labels, sizes, some_of


@st.composite
def resnet_values(draw: st.DrawFn) -> Values:
    stages = draw(sizes(4))
    first = draw(sizes(20, least=4))
    widths = st.sampled_from([first, first + 3, 2 * first])
    values = {
        "num_channels": draw(sizes(4)),
        "embedding_size": draw(sizes(12) | st.just(first)),
        "hidden_sizes": [first, *(draw(widths) for _ in range(stages - 1))],
        "depths": [draw(sizes(3, least=0)) for _ in range(stages)],
        "layer_type": draw(st.sampled_from(["basic", "bottleneck"])),
        "downsample_in_first_stage": draw(st.booleans()),
        "downsample_in_bottleneck": draw(st.booleans()),
        **draw(handed_on(stages)),
        **draw(labels()),
    }
    lists = {"hidden_sizes", "depths", "out_features", "out_indices"}
    return draw(some_of(values, frozenset(lists & values.keys())))


VALUES = {"resnet": resnet_values()}
