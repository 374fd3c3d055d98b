"""Lists with an item for each layer: found, resized with their depth, and read off the layers."""

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.analytic import Config, catalogue
from auditor.analytic.config_keys import changed
from auditor.analytic.outline import ClassTree
from auditor.diagnosis.solving.held_tensors import HeldTensors
from auditor.diagnosis.solving.layer_lists import LayerList, fitted, layer_lists, of_depth, resized

LFM2 = {
    "model_type": "lfm2",
    "vocab_size": 100,
    "hidden_size": 64,
    "block_ff_dim": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
WORDS = ("conv", "full_attention")


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.integers(2, 5), st.integers(1, 40)
)
def test_a_periodic_list_goes_on_in_its_period(period, times, depth):
    items = period * times
    assert of_depth(items, len(items), depth) == [period[at % len(period)] for at in range(depth)]


def test_patterns_and_numbers_follow_the_depth(subtests):
    for items, depth, expected in [
        ([[["global", "local"], 3]], 10, [[["global", "local"], 5]]),
        ([[["global", "local"], 3]], 9, None),  # not an integer number of patterns
        ([0, 1, 2, 3, 4, 5], 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ([2, 5], 4, [1, 3]),
        ([2, 5], 9, [2, 5]),
        ([2, 5], 0, None),
    ]:
        with subtests.test(items=items, depth=depth, expected=expected):
            assert of_depth(items, 6, depth) == expected


def test_only_lists_as_long_as_a_depth_go_with_it():
    config = LFM2 | {
        "layer_types": ["conv"] * 6,
        "full_attn_idxs": [2, 5],
        "stop_ids": [1, 2, 3, 4, 5, 6],
        "per_layer_config": {"2": {"head_dim": 8}, "5": {"head_dim": 8}},
    }
    found = {one.path for one in layer_lists(config)}
    assert found == {"layer_types", "full_attn_idxs"}
    assert dict(resized(config, {"num_hidden_layers": 4})) == {
        "layer_types": ["conv"] * 4,
        "full_attn_idxs": [1, 3],
        "per_layer_config": {"2": {"head_dim": 8}},
    }
    every_layer = config | {"full_attn_idxs": [0, 1, 2, 3, 4, 5]}
    assert dict(resized(every_layer, {"num_hidden_layers": 4}))["full_attn_idxs"] == [0, 1, 2, 3]


@examples(20)
@given(*[st.lists(st.sampled_from(WORDS), min_size=6, max_size=6)] * 2)
def test_each_layer_gets_the_item_whose_tensors_it_stores(declared, true):
    config = LFM2 | {"layer_types": declared}
    expected = catalogue.expect(Config(values=LFM2 | {"layer_types": true}), "Lfm2Model")

    def trees(values):
        values = Config(values=changed(config, values))
        return ClassTree(catalogue.block_tree(values, "Lfm2Model"), "")

    shapes = {one.name: one.shape for one in expected.needed}
    one = LayerList("layer_types", "num_hidden_layers", 6)
    assert fitted(config, one, WORDS, trees, HeldTensors(shapes)) == true


def test_a_depth_that_the_config_omits_is_that_of_its_class():
    [one] = layer_lists({"model_type": "llama", "layer_types": ["full_attention"] * 32})
    assert one == LayerList("layer_types", "num_hidden_layers", 32)
