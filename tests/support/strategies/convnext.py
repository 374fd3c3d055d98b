from hypothesis import strategies as st
from support.strategies.common import Values, handed_on, labels, sizes, some_of


@st.composite
def convnext_values(draw: st.DrawFn) -> Values:
    stages = draw(sizes(3))
    patch = sizes(4)

    def by_stage(sizes: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(sizes, min_size=stages, max_size=stages))

    values = {
        "num_stages": stages,
        "hidden_sizes": by_stage(sizes(9)),
        "depths": by_stage(sizes(2, least=0)),
        "num_channels": draw(sizes(4)),
        "patch_size": draw(patch | st.lists(patch, min_size=2, max_size=2)),
        "layer_scale_init_value": draw(st.sampled_from([0.0, 1e-6, 1.0])),
        **draw(handed_on(stages)),
        **draw(labels()),
    }
    lists = {"num_stages", "hidden_sizes", "depths", "out_features", "out_indices"}
    return LEAST["convnext"] | draw(some_of(values, frozenset(lists & values.keys())))


# transformers 5.23 adds a list to the sizes, and its own defaults are a tuple.
LEAST = {"convnext": {"hidden_sizes": [96, 192, 384, 768]}}
VALUES = {"convnext": convnext_values()}
