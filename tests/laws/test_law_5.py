"""Law 5: a folded name expands to exactly the names it came from."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.reconciler.fold import expand, fold
from auditor.tensors import natural_key

# Words and numbers of a checkpoint, with what patterns are made of mixed in.
PARTS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(
        ["weight", "bias", "layer", "w1", "w2", "", "00", "01", "09", "010", "1-3", "a,b"]
    ),
    st.text("{},-\\01a.", max_size=4),
)
NAMES = st.one_of(
    st.lists(PARTS, min_size=1, max_size=5).map(".".join),
    st.lists(PARTS, min_size=1, max_size=3).map("".join),
    st.text(max_size=6),
)
GRIDS = st.tuples(
    st.sets(st.integers(0, 30), min_size=1, max_size=8),
    st.sets(st.integers(0, 5), min_size=1, max_size=4),
    st.sets(st.sampled_from(["weight", "bias", "w1.scale", "g"]), min_size=1),
).map(
    lambda grid: {f"h.{n}.experts.{e}.{word}" for n in grid[0] for e in grid[1] for word in grid[2]}
)


def expansions(patterns):
    return [name for pattern in patterns for name in expand(pattern)]


@given(st.lists(NAMES, max_size=40), st.booleans())
def test_a_folded_name_expands_to_exactly_the_names_it_came_from(names, words):
    assert sorted(expansions(fold(names, words=words))) == sorted(set(names))


@given(st.sets(GRIDS.flatmap(lambda grid: st.sampled_from(sorted(grid))), max_size=60))
def test_layers_with_holes_expand_to_exactly_their_names(names):
    assert sorted(expansions(fold(names))) == sorted(names)


@given(st.sets(st.text("0123456789", min_size=1, max_size=3), max_size=60))
def test_numbers_keep_the_zeros_in_front_of_them(numbers):
    assert sorted(expansions(fold(f"x.{n}" for n in numbers))) == sorted(f"x.{n}" for n in numbers)


@given(GRIDS.filter(lambda grid: not any("scale" in name for name in grid)))
def test_every_combination_of_numbers_and_words_is_one_pattern(names):
    assert len(fold(names)) == 1


@given(st.lists(NAMES, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_names_changes_nothing(names, shuffler):
    shuffled = names * 2
    shuffler.shuffle(shuffled)
    assert fold(shuffled) == fold(names)


@given(st.lists(NAMES, max_size=20))
def test_patterns_come_in_the_natural_order_of_their_first_names(names):
    firsts = [expand(pattern)[0] for pattern in fold(names)]
    assert firsts == sorted(firsts, key=natural_key)


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        ([], ()),
        ([""], ("",)),
        (["encoder.layer.0.bias"], ("encoder.layer.0.bias",)),
        (
            [f"encoder.layer.{n}.output.dense.bias" for n in range(12)],
            ("encoder.layer.{0-11}.output.dense.bias",),
        ),
        ([f"h.{n}.w" for n in (*range(6), *range(20, 26))], ("h.{0-5,20-25}.w",)),
        (["h.3.w", "h.7.w"], ("h.{3,7}.w",)),
        (
            [f"layers.{n}.mlp.experts.{e}.w1.weight" for n in range(61) for e in range(256)],
            ("layers.{0-60}.mlp.experts.{0-255}.w1.weight",),
        ),
        (["dense.weight", "dense.bias"], ("dense.{bias,weight}",)),
        (["a.weight", "a.bias", "b.bias"], ("a.{bias,weight}", "b.bias")),
        (["a.weight", "a.b.weight"], ("a.b.weight", "a.weight")),
        (
            [f"h.{n}.{x}.{y}" for n in range(2) for x in "kqv" for y in ("bias", "weight")],
            ("h.{0-1}.{k,q,v}.{bias,weight}",),
        ),
        (
            [f"model-{n:05}-of-00163.safetensors" for n in range(1, 164)],
            ("model-{00001-00163}-of-00163.safetensors",),
        ),
        (["x.00012"], ("x.00012",)),
        (["x.9", "x.09", "x.10"], ("x.{9,09-10}",)),
        (["x.8", "x.9", "x.10"], ("x.{8-10}",)),
        (["x.1-2", "x.1-3"], ("x.1-{2-3}",)),
        (["x.1-2", "x.y"], ("x.1-2", "x.y")),
        (["x.{0-3}", "x.{0-4}"], (r"x.\{0-3\}", r"x.\{0-4\}")),
        (["x.a,b", "x.c"], ("x.a,b", "x.c")),
        (["x\\y"], (r"x\\y",)),
        (["x..y", "x.z.y"], ("x..y", "x.z.y")),
        (["x.\u0661", "x.\u0662"], ("x.{\u0661,\u0662}",)),  # digits, but not of ours
        ([f"x.{10**18}", f"x.{10**18 + 1}"], (f"x.{10**18}", f"x.{10**18 + 1}")),
    ],
)
def test_names_fold_to_these_patterns(names, patterns):
    assert sorted(fold(names)) == sorted(patterns)


def test_an_expert_that_one_layer_lacks_costs_one_pattern():
    names = {f"layers.{n}.experts.{e}.w" for n in range(61) for e in range(256)}
    assert fold(names - {"layers.7.experts.255.w"}) == (
        "layers.{0-60}.experts.{0-254}.w",
        "layers.{0-6,8-60}.experts.255.w",
    )


def test_words_are_left_alone_where_only_numbers_are_to_fold():
    names = [f"h.{n}.{word}" for n in range(3) for word in ("bias", "weight")]
    assert fold(names, words=False) == ("h.{0-2}.bias", "h.{0-2}.weight")


def test_ninety_thousand_names_fold_to_a_line_for_each_kind_of_tensor():
    words = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    names = [f"layers.{n}.experts.{e}.{w}" for n in range(60) for e in range(500) for w in words]
    random.shuffle(names)
    assert fold(names) == ("layers.{0-59}.experts.{0-499}.{down_proj,gate_proj,up_proj}.weight",)


def test_names_of_thousands_of_numbers_are_left_as_they_are():
    names = [f"{'1.' * 5000}{n}" for n in range(20)]
    assert set(fold(names)) == set(names)


@pytest.mark.parametrize("pattern", ["x.{", "x.}", "x.{}", "x.{a{b}}", "x\\", "x\\y"])
def test_expand_refuses_what_fold_never_makes(pattern):
    with pytest.raises(ValueError, match="not a folded name, at character"):
        expand(pattern)


@pytest.mark.parametrize(
    "ordered",
    [
        ["layer.2", "layer.10"],
        ["", "h", "h.0", "h.0.attn", "h.1", "h-0", "h0", "h10"],
        ["x.01", "x.1", "x.2"],
        ["x." + "9" * 5000],
    ],
)
def test_natural_order_counts_as_people_do_and_keeps_a_module_before_its_parts(ordered):
    assert sorted(set(ordered), key=natural_key) == ordered


@given(st.text("ab.019", max_size=20))
def test_a_name_too_long_to_be_kept_sorts_by_the_same_rule(name: str) -> None:
    long = "c" * 300
    padded, _ = natural_key(name)
    assert natural_key(f"{name}.{long}") == (f"{padded}\0{long}", f"{name}.{long}")
