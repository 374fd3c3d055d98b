"""Sizes that stored shapes determine: two configs that store the same tensors differ in none."""

import json

from hypothesis import assume, given
from hypothesis import strategies as st

from auditor.analytic import catalogue
from auditor.analytic.config import read_config
from auditor.analytic.outline import ClassTree, leaves
from auditor.diagnosis.solving.held_tensors import HeldTensors
from auditor.diagnosis.solving.size_equations import determined_sizes
from auditor.errors import CheckpointError

_MODELS = {
    "LlamaForCausalLM": ("llama", ("num_attention_heads", "num_key_value_heads", "head_dim")),
    "Qwen2ForCausalLM": ("qwen2", ("num_attention_heads", "num_key_value_heads")),
    "Qwen3ForCausalLM": ("qwen3", ("num_attention_heads", "num_key_value_heads", "head_dim")),
    "Phi3ForCausalLM": ("phi3", ("num_attention_heads", "num_key_value_heads")),
    "BertForMaskedLM": ("bert", ("num_attention_heads",)),
    "T5ForConditionalGeneration": ("t5", ("num_heads", "d_kv")),
}
_WIDTHS = {"t5": "d_model"}


def tree_of(target, values):
    """The tree of a config, and its shapes by name; None if no model can be built of it."""
    content = json.dumps({"model_type": _MODELS[target][0], **values}).encode()
    try:
        tree = catalogue.block_tree(read_config("config.json", content), target)
    except CheckpointError:
        return None
    shapes = {leaf.name: tuple(map(int, _values(leaf.shape))) for leaf in leaves(tree)}
    return ClassTree(tree, catalogue.family(_MODELS[target][0]).prefix), shapes


def _values(shape):
    return (size if isinstance(size, int) else size.value for size in shape)


@st.composite
def pairs(draw):
    """Two configs of a class, one with some times as many heads, each so much smaller; as trees."""
    target = draw(st.sampled_from(sorted(_MODELS)))
    model_type, free = _MODELS[target]
    groups, size = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([8, 16]))
    factor, per_group = draw(st.sampled_from([2, 4])), draw(st.sampled_from([1, 2]))
    common = {
        _WIDTHS.get(model_type, "hidden_size"): groups * per_group * size,
        "vocab_size": draw(st.integers(50, 60)),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "intermediate_size": draw(st.integers(10, 40)),
    }
    one = dict.fromkeys(free, groups * per_group)
    one |= {key: size for key in free if key in {"head_dim", "d_kv"}}
    one |= {key: groups for key in free if key == "num_key_value_heads"}
    other = {
        key: value // factor if key in {"head_dim", "d_kv"} else value * factor
        for key, value in one.items()
    }
    configs = draw(st.permutations([common | one, common | other]))
    trees = [tree_of(target, config) for config in configs]
    assume(None not in trees)
    return *configs, *trees


@given(pairs())
def test_keys_that_differ_between_two_configs_of_the_same_shapes_are_not_determined(pair):
    one, other, (tree, shapes), (_, same) = pair
    assume(shapes == same)
    found = {symbol.key for symbol in determined_sizes(HeldTensors(shapes).equations(tree), {})}
    assert not {key for key in one if one[key] != other[key]} & found


@given(pairs())
def test_a_determined_size_is_that_of_the_config_that_wrote_the_tensors(pair):
    """Whatever the numbers of heads in the config by which they are read."""
    one, _, (_, shapes), (tree, _) = pair
    found = determined_sizes(HeldTensors(shapes).equations(tree), {})
    assert all(one.get(symbol.key, value) == value for symbol, value in found.items())
    assert "vocab_size" in {symbol.key for symbol in found}


@given(st.integers(1, 8), st.integers(1, 8), st.sampled_from([4, 8, 16]))
def test_heads_are_determined_once_their_size_is_given(heads, groups, size):
    values = {
        "hidden_size": 64,
        "head_dim": size,
        "num_attention_heads": heads * groups,
        "num_key_value_heads": groups,
        "num_hidden_layers": 1,
    }
    made = tree_of("LlamaForCausalLM", values)
    assume(made is not None)
    tree, shapes = made
    keys = ("num_attention_heads", "num_key_value_heads")
    found = determined_sizes(HeldTensors(shapes).equations(tree), {"head_dim": size})
    by_key = {symbol.key: value for symbol, value in found.items()}
    assert [by_key[key] for key in keys] == [values[key] for key in keys]
    alone = {symbol.key for symbol in determined_sizes(HeldTensors(shapes).equations(tree), {})}
    assert alone.isdisjoint(keys)
