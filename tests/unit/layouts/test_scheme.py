"""Which modules are plain while their like is packed, and what a list may mean by its names."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.packed import stored

from auditor.layouts._scheme import (
    names_in_skip_lists,
    names_matching_globs,
    plain_among_packed,
    unlisted,
)
from auditor.layouts.packing import Stored

HALF = ("F16", (64, 32))
LAYER = "model.layers.1.self_attn.q_proj"


def odd(plain, packed, *, described=HALF, **options):
    table = {f"{module}.weight": described for module in plain}
    return set(plain_among_packed(Stored(stored(table)), packed, **options))


def test_names_that_differ_only_in_integers_are_of_one_kind(subtests):
    for plain, packed, found in [
        ("model.layers.1.mlp.fc", {"model.layers.0.mlp.fc", LAYER}, True),
        ("model.layers.1.mlp.fc", {"model.layers.0.mlp.fc"}, False),  # a layer for drafting
        ("model.layers.1.mlp.fc", {"model.layers.0.mlp.gate", LAYER}, False),
        ("model.layers.1.mlp.fc2", {"model.layers.0.mlp.fc1", LAYER}, False),  # never packed
        ("model.layers.1.experts.5", {"model.layers.1.experts.4"}, True),
        ("vit2.layers.1.fc", {"vit2.layers.0.fc", "vit2.layers.0.q"}, False),
        ("lm_head", {"model.layers.0.mlp.fc"}, False),
        ("model.layers.1.self_attn.o_proj", {LAYER}, True),  # beside the other projections
        ("model.layers.1.self_attn.o_proj", {"model.layers.1.mlp.up_proj"}, False),
        ("model.layers.1.self_attn.weights_proj", {LAYER}, False),  # an indexer's, or a gate's
        ("model.layers.1.mlp.fc", {"model.layers.1.mlp.fc", "model.layers.0.mlp.fc"}, False),
    ]:
        with subtests.test(plain=plain, packed=packed, found=found):
            assert odd([plain], packed) == ({plain} if found else set())


def test_a_layer_without_anything_packed_counts_where_the_writer_stores_what_it_loads():
    plain, packed = ["model.layers.1.mlp.fc"], {"model.layers.0.mlp.fc"}
    assert odd(plain, packed, whole_layers=True) == set(plain)


def test_plain_is_a_matrix_of_floats(subtests):
    for described, found in [
        (HALF, True),
        (None, True),  # only an index names it
        (("F16", (64,)), False),
        (("U8", (64, 32)), False),
        (("F8_E4M3", (64, 32)), False),
    ]:
        with subtests.test(described=described, found=found):
            modules = ["model.layers.1.mlp.fc"]
            packed = {"model.layers.0.mlp.fc", LAYER}
            assert odd(modules, packed, described=described) == (set(modules) if found else set())


def test_whatever_may_be_meant_for_a_module_counts_as_listed(subtests):
    for listed, meant in [
        ((), False),
        (("lm_head",), False),
        (("layers.11",), False),
        (("layers.1",), True),
        (("language_model.model.layers.1.mlp",), True),
        (("fc",), True),
        (("mlp.*",), True),  # a pattern may mean anything
        (("a" * 1_000_000,), False),
        (tuple(f"a{number}" for number in range(100_000)), True),  # too many to tell
    ]:
        with subtests.test(listed=listed, meant=meant):
            module = "model.layers.1.mlp.fc"
            assert unlisted(frozenset(listed))([module]) == ([] if meant else [module])


# --- patterns of skip lists -----------------------------------------------------------------------


NAMES = st.lists(st.text("ab0_.", max_size=8), max_size=6)
GLOBS = st.lists(st.text("ab0.*?", min_size=1, max_size=5), max_size=3)


@given(GLOBS, NAMES)
def test_a_glob_matches_what_fnmatch_does(globs, names):
    expected = {name for name in names if any(fnmatchcase(name, one) for one in globs)}
    assert names_matching_globs(globs, names) == expected
    assert names_matching_globs(globs, names, below=True) == expected | {
        name
        for name in names
        for one in globs
        if any(fnmatchcase(name[:end], one) for end, char in enumerate(name) if char == ".")
    }


KEYS = st.text("ab0.", min_size=1, max_size=4).filter(lambda key: not key.endswith("."))


@given(st.lists(KEYS, max_size=3), NAMES)
def test_a_key_without_marks_skips_as_the_same_key_with_them(keys, names):
    escaped = [f"(?:{re.escape(key)})" for key in keys]
    ends = {name for name in names if name.endswith(tuple(keys))}
    assert names_in_skip_lists(keys, names) == names_in_skip_lists(escaped, names) | ends


SKIPPED = [
    ("lm_head", "model.lm_head", True),  # as the name's end
    ("layers.1", "layers.1.attn", True),
    ("layers.1", "layers.11.attn", False),
    ("layers.*", "layers.11.attn", True),
    ("mlp.gate", "mlp.gate_proj", False),
    ("model.layers.*.self_attn", "model.layers.3.self_attn.q_proj", True),
    ("model.layers.*.self_attn", "model.layers.3.mlp", False),
    ("fc1", "model.layers.23.fc12", False),
    ("mlp.gate$", "mlp.gate.x", False),
    ("model.", "model.layers.1", True),
    ("^(?!.*head).*mlp|norm", "norm.weight", True),
]


def test_a_skip_list_ends_at_a_dot_or_is_the_end_of_a_name(subtests):
    for key, name, expected in SKIPPED:
        with subtests.test(key=key, name=name, expected=expected):
            assert (names_in_skip_lists([key], [name]) == {name}) is expected


@pytest.mark.oracle
def test_a_skip_list_skips_what_transformers_skips(subtests):
    for key, name, expected in SKIPPED:
        with subtests.test(key=key, name=name, expected=expected):
            from transformers.quantizers.quantizers_utils import should_convert_module  # noqa: PLC0415

            assert should_convert_module(name, [key]) is not expected


@pytest.mark.slow
def test_a_skip_list_of_any_length_ends_for_names_of_any_depth():
    names = [f"model.layers.{number}.mlp" for number in range(50_000)]
    keys = [f"{number}{'x' * (number % 100)}" for number in range(100_000)]
    deep = "a." * 1_000_000 + "b"
    assert names_in_skip_lists([*keys, "a", "9.mlp"], [*names, deep]) == {
        deep,
        *(name for name in names if name.endswith("9.mlp")),
    }


def test_a_skip_list_with_a_key_that_is_not_followed_is_undecided(subtests):
    for key in [r"(a)\1", "(a", "(?i)LM", "a" * 5000 + "("]:
        with subtests.test(key=key):
            assert names_in_skip_lists(["a", key], ["a"]) is None
