"""The order in which names are shown."""

from hypothesis import given
from hypothesis import strategies as st
from support.depths import depths, listed

from auditor.tensors import Depth, natural_key


def test_natural_order_counts_as_people_do_and_keeps_a_module_before_its_parts(subtests):
    for ordered in [
        ["layer.2", "layer.10"],
        ["", "h", "h.0", "h.0.attn", "h.1", "h-0", "h0", "h10"],
        ["x.01", "x.1", "x.2"],
        ["x." + "9" * 5000],
    ]:
        with subtests.test(ordered=ordered):
            assert sorted(set(ordered), key=natural_key) == ordered


@given(st.text("ab.019", max_size=20))
def test_a_name_too_long_for_the_cache_sorts_by_the_same_rule(name: str) -> None:
    long = "c" * 300
    padded, _ = natural_key(name)
    assert natural_key(f"{name}.{long}") == (f"{padded}\0{long}", f"{name}.{long}")


@given(st.lists(st.sampled_from(["a", "0", "12", "b1"]), max_size=7).map(".".join), depths())
def test_a_module_is_cut_to_the_deepest_one_around_it_that_is_listed(prefix, depth):
    parts = prefix.split(".") if prefix else []
    around = [".".join(parts[:count]) for count in range(len(parts) + 1)]
    assert depth.cut(prefix) == [one for one in around if listed(depth, one)][-1]
    assert depth.lists(prefix) == listed(depth, prefix)


def test_the_parameters_of_hidden_layers_are_counted():
    depth = Depth(4, layers=2)
    assert depth.cut("bert.encoder.layer.0.attention") == "bert.encoder.layer.0"
    assert depth.cut("encoder.layer.0.attention") == "encoder.layer.0"
    assert depth.cut("layers.0.attention.self.query") == "layers.0.attention.self"


def test_a_depth_may_be_any_number():
    assert Depth(10**30).cut("bert.encoder.layer.0") == "bert.encoder.layer.0"
