"""A tree of a class that only the oracle knows: every tensor, with keys that its lengths may be."""

from auditor.diagnosis.solving.inventories import shared_keys, tree_of_shapes
from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic.dims import dim
from auditor.analytic.outline import follow

LAYERS = {
    f"layers.{at}.{name}": shape
    for at in range(3)
    for name, shape in {"up.weight": (12, 8), "up.bias": (12,), "norm.weight": (8,)}.items()
}
WORD = st.sampled_from(["a", "b", "0", "1", "2"])
SHAPE = st.lists(st.integers(1, 40), max_size=3).map(tuple)


def keys_of(sizes):
    return [sorted(symbol.key for symbol in dim(size).symbols) for size in sizes]


@given(st.dictionaries(st.tuples(st.just("m"), WORD, WORD, st.just("w")), SHAPE, min_size=1))
def test_the_tree_has_each_tensor_in_its_shape(shapes):
    by_name = {".".join(parts): shape for parts, shape in shapes.items()}
    tree = tree_of_shapes(by_name, {"hidden_size": 8, "num_hidden_layers": 2}).tree
    for name, shape in by_name.items():
        assert tuple(dim(size).value for size in follow(tree, name).shape) == shape


def test_a_length_that_one_key_has_is_that_key():
    tree = tree_of_shapes(LAYERS, {"hidden_size": 8, "ffn": 12, "num_layers": 3}).tree
    path = follow(tree, "layers.2.up.weight")
    assert keys_of(path.shape) == [["ffn"], ["hidden_size"]]
    assert keys_of(one.modules for one in path.lists) == [["num_layers"]]


def test_a_length_that_two_keys_have_is_only_a_number():
    config = {"hidden_size": 8, "text_config": {"window": 8}, "num_layers": 3, "depth": 3}
    path = follow(tree_of_shapes(LAYERS, config).tree, "layers.2.up.weight")
    assert keys_of(path.shape) == [[], []]
    assert keys_of(one.modules for one in path.lists) == [[]]


def test_each_of_several_keys_with_one_value_has_the_lengths_that_change_with_it():
    def implied(values):
        config = {"width": 8, "rank": 8, "num_layers": 2, "depth": 2, **values}
        shape = (config["width"], config["rank"], 8)
        count = config["num_layers"]
        return {f"layers.{at}.up.weight": shape for at in range(count)}

    config = {"width": 8, "rank": 8, "num_layers": 2, "depth": 2}
    shapes = implied({})
    tree = tree_of_shapes(shapes, config, shared_keys(shapes, config, implied)).tree
    path = follow(tree, "layers.1.up.weight")
    assert keys_of(path.shape) == [["width"], ["rank"], []]
    assert keys_of(one.modules for one in path.lists) == [["num_layers"]]
