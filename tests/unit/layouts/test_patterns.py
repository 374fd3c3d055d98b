"""Skip lists cover what transformers skips, and globs what fnmatch matches."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.layouts._patterns import names_in_skip_lists, names_matching_globs

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
    ("lm_head", "lm_head", True),
    ("lm_head", "model.lm_head", True),  # as the name's end
    ("layers.1", "layers.1.attn", True),
    ("layers.1", "layers.11.attn", False),
    ("layers.*", "layers.11.attn", True),
    ("mlp.gate", "mlp.gate_proj", False),
    ("model.layers.*.self_attn", "model.layers.3.self_attn.q_proj", True),
    ("model.layers.*.self_attn", "model.layers.3.mlp", False),
    ("fc1", "model.layers.23.fc1", True),
    ("fc1", "model.layers.23.fc12", False),
    ("mlp.gate$", "mlp.gate", True),
    ("mlp.gate$", "mlp.gate.x", False),
    ("model.", "model.layers.1", True),
    ("^(?!.*head).*mlp|norm", "norm.weight", True),
]


@pytest.mark.parametrize(("key", "name", "expected"), SKIPPED)
def test_a_skip_list_ends_at_a_dot_or_is_the_end_of_a_name(key, name, expected):
    assert (names_in_skip_lists([key], [name]) == {name}) is expected


@pytest.mark.oracle
@pytest.mark.parametrize(("key", "name", "expected"), SKIPPED)
def test_a_skip_list_skips_what_transformers_skips(key, name, expected):
    from transformers.quantizers.quantizers_utils import should_convert_module  # noqa: PLC0415

    assert should_convert_module(name, [key]) is not expected


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("model.layers.0*", "model.layers.0.q_proj", True),
        ("model.layers.0*", "model.layers.10.q_proj", False),
        ("*.self_attn*", "model.layers.3.self_attn.q_proj", True),
        ("lm_head", "lm_head", True),
        ("lm_head", "lm_head.x", False),
        ("layers.?", "layers.1", True),
        ("layers.?", "layers.12", False),
        ("layers.[1]", "layers.1", False),
    ],
)
def test_a_star_is_any_characters_and_the_rest_is_literal(pattern, name, expected):
    assert (names_matching_globs([pattern], [name]) == {name}) is expected


@pytest.mark.slow
def test_a_skip_list_of_any_length_ends_for_names_of_any_depth():
    names = [f"model.layers.{number}.mlp" for number in range(50_000)]
    keys = [f"{number}{'x' * (number % 100)}" for number in range(100_000)]
    deep = "a." * 1_000_000 + "b"
    assert names_in_skip_lists([*keys, "a", "9.mlp"], [*names, deep]) == {
        deep,
        *(name for name in names if name.endswith("9.mlp")),
    }


@pytest.mark.parametrize("key", [r"(a)\1", "(a", "(?i)LM", "a" * 5000 + "("])
def test_a_skip_list_with_a_key_that_is_not_followed_is_undecided(key):
    assert names_in_skip_lists(["a", key], ["a"]) is None
