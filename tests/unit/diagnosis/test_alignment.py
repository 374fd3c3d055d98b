"""Edits of segments bring names back to the expected ones, whatever was done to them."""

import re

from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import expect

from auditor.diagnosis.alignment import Kinds, choices, renames_by_rule
from auditor.names.kinds import kinds_of

SMALL = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
EXPECTED = {
    one.name: one.shape
    for one in expect("LlamaForCausalLM", model_type="llama", **SMALL).tensors
    if one.role.learned
}
words = st.lists(
    st.sampled_from(["net", "student", "_orig_mod", "core", "m2"]), min_size=1, max_size=3
)


def aligned(names):
    """The new names by the best choice of rules, for expected names stored under other names."""
    shapes = {new: EXPECTED[old] for old, new in names.items()}
    unexpected = [new for old, new in names.items() if new not in EXPECTED]
    missing = [old for old in names if old not in shapes]
    stored = Kinds(kinds_of(unexpected), shapes)
    chosen = next(choices(stored, Kinds(kinds_of(missing), EXPECTED), "model"), ())
    by_rule = renames_by_rule(stored.kinds, chosen)
    return {old: new for renames in by_rule.values() for old, new in renames.items()}


def assert_undone(names):
    changed = {new: old for old, new in names.items() if old != new}
    assert aligned(names) == changed


@given(words)
def test_a_prefix_is_stripped(parts):
    prefix = ".".join(parts)
    assert_undone({name: f"{prefix}.{name}" for name in EXPECTED})


@given(words)
def test_modules_inside_each_layer_are_stripped(parts):
    inner = ".".join(parts)
    assert_undone({name: re.sub(r"(layers\.\d+)", rf"\1.{inner}", name) for name in EXPECTED})


@given(words, words)
def test_a_prefix_and_modules_inside_are_stripped_together(before, within):
    inner = ".".join(within)
    names = {name: re.sub(r"(layers\.\d+)", rf"\1.{inner}", name) for name in EXPECTED}
    assert_undone({old: f"{'.'.join(before)}.{new}" for old, new in names.items()})


@given(st.sampled_from(["self_attn", "mlp", "layers"]))
def test_a_level_that_one_part_lacks_is_added(part):
    assert_undone(
        {name: name.replace(f"{part}.", "") if part == "mlp" else name for name in EXPECTED}
    )
    moved = {name: name.replace(f".{part}.", f".body.{part}.") for name in EXPECTED}
    assert_undone(moved)


def test_two_parts_that_moved_get_a_rule_each():
    names = {
        name: name.replace("self_attn.", "core.self_attn.").replace("mlp.", "inner.mlp.")
        for name in EXPECTED
    }
    assert_undone(names)


def test_names_without_common_segments_get_no_rule():
    assert aligned({name: f"x{at}" for at, name in enumerate(EXPECTED)}) == {}


def test_layers_never_get_one_name():
    names = {name: name.replace("model.layers", "blocks") for name in EXPECTED}
    renames = aligned(names)
    assert len(set(renames.values())) == len(renames)


def test_a_rule_that_is_as_good_is_proposed_next():
    """Two towers of equal names and shapes: nothing shows which of them is stored."""
    towers = {f"{tower}.layers.0.fc.weight": (4, 4) for tower in ("text", "image")}
    stored = {"layers.0.fc.weight": (4, 4)}
    kinds = Kinds(kinds_of(stored), stored), Kinds(kinds_of(towers), towers)
    first, second, *_ = (renames_by_rule(kinds[0].kinds, one) for one in choices(*kinds, ""))
    assert {
        new for by_rule in (first, second) for new in next(iter(by_rule.values())).values()
    } == {*towers}


def proposed(stored, expected, used=()):
    """The rules that are proposed for stored names, all of one shape."""
    shapes = dict.fromkeys((*stored, *expected), (8,))
    kinds = (Kinds(kinds_of(names), shapes) for names in (stored, expected))
    return [chosen for chosen in choices(*kinds, "model", kinds_of(used)) if chosen]


def test_a_tensor_is_not_moved_out_of_a_module_whose_others_stay():
    head = ["head.norm.weight", "head.norm.bias"]
    assert proposed(head, ["norm_before.weight", "norm_before.bias"])
    assert not proposed([*head, "head.probe"], ["norm_before.weight", "norm_before.bias"])
    bias = ["tower.embeddings.patch.bias"]
    assert proposed(bias, ["tower.norm.bias"])
    assert not proposed(bias, ["tower.norm.bias"], used=["tower.embeddings.patch.weight"])


def test_names_of_unknown_shape_are_not_replaced():
    [stored], [expected] = kinds_of(["layers.0.k_proj.weight"]), kinds_of(["layers.0.kv.weight"])
    known, unknown = dict.fromkeys(expected.names, (8,)), dict.fromkeys(stored.names)
    shapes = dict.fromkeys(stored.names, (8,))
    assert [one for one in choices(Kinds((stored,), shapes), Kinds((expected,), known), "") if one]
    found = choices(Kinds((stored,), unknown), Kinds((expected,), known), "")
    assert not [one for one in found if one]


def test_a_number_before_a_slash_is_an_ordinary_part_of_a_name():
    names = ["blk/0.a.bias", "blk/1.a.bias"]
    shapes = dict.fromkeys((*names, "layers.0.a.bias", "layers.1.a.bias"), (8,))
    stored, missing = kinds_of(names), kinds_of(["layers.0.a.bias", "layers.1.a.bias"])
    for chosen in choices(Kinds(stored, shapes), Kinds(missing, shapes), ""):
        for renames in renames_by_rule(stored, chosen).values():
            assert set(renames) <= set(names)
