"""Patterns of module names: what Python's re says, and an end for what would never end."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.layouts._patterns import (
    match_tree,
    matching_names,
    names_in_skip_lists,
    names_matching_globs,
)

ATOMS = st.sampled_from(
    ["a", "b", "0", r"\.", ".", "[ab]", "[^a.]", "[0-9]", r"\d", r"\w", "_", "[0-3b]", r"[\d.]"]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "+?"])


def join(parts):
    return "".join(map("".join, parts))


PLAIN = st.lists(st.tuples(ATOMS, QUANTIFIERS), max_size=5).map(join)
GROUPS = st.tuples(st.lists(PLAIN, min_size=1, max_size=3), QUANTIFIERS).map(
    lambda group: f"({'|'.join(group[0])}){group[1]}"
)
EXPRESSIONS = st.tuples(
    st.sampled_from(["", "^"]),
    st.lists(PLAIN | GROUPS, max_size=3).map("".join),
    st.sampled_from(["", "$"]),
).map("".join)
NAMES = st.lists(st.text("ab0_.", max_size=8), max_size=6)


@given(EXPRESSIONS, NAMES)
def test_an_expression_matches_what_re_match_does(expression, names):
    expected = frozenset(name for name in names if re.match(expression, name))
    assert matching_names([match_tree(expression)], names) == expected


@given(st.lists(EXPRESSIONS, max_size=4), NAMES)
def test_several_expressions_match_what_any_of_them_does(expressions, names):
    expected = frozenset(
        name for name in names if any(re.match(expression, name) for expression in expressions)
    )
    assert matching_names(map(match_tree, expressions), names) == expected


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


@given(st.lists(st.text("ab0.", min_size=1, max_size=4), max_size=3), NAMES)
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


@pytest.mark.parametrize(
    "expression",
    [
        "(?!lm_head).*",
        "(?=a)a",
        "(?<=a)b",
        r"(a)\1",
        r"\bq_proj",
        "(?i)LM",
        "a**",
        "(a",
        "a)",
        "[a",
        "a$b",
        "a^b",
        "a|b$",
        "\\",
        "{2}",
        "(" * 100 + ")" * 100,
    ],
)
def test_syntax_that_is_not_read_is_not_guessed(expression):
    assert match_tree(expression) is None
    assert matching_names([match_tree("a"), match_tree(expression)], ["a"]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("(a+)+$", ["a" * 5_000 + "!"]),
        ("(a|a)*b", [f"{'a' * 60}{number}" for number in range(90_000)]),
        (".*.*.*.*.*.*.*.*=", ["a" * 1_000_000]),
        ("(((a{60}){60}){60}){60}", ["a" * 100]),
        ("a{999}", ["a"]),
        ("(a|b|" + "c" * 30_000 + ")", ["c" * 30_000]),
        ("(.?.?.?.?.?.?.?.?.?.?){30}x", [f"{number}" * 40 for number in range(50_000)]),
    ],
)
def test_a_hostile_pattern_ends(expression, names):
    assert matching_names([match_tree(expression)], names) in (None, frozenset())
