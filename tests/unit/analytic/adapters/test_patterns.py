"""Expressions from strangers match what Python says they match, and never take long about it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic.adapters.patterns import MOST_CHARACTERS, UnsafeError, pattern, suffixes

NAMES = st.lists(st.sampled_from(["a", "b", "ab", "q_proj", "layers", "0", "12"]), max_size=4).map(
    ".".join
)
LEAVES = st.sampled_from(
    ["a", "b", "q_proj", "layers", "0", ".", r"\.", r"\d", r"\w", r"\S", "[ab]", "[^.]", "[0-9]"]
)
PLACES = st.sampled_from(["^", "$", r"\b", r"\B", r"\-", "[]a]", r"[\d_]", ""])
QUANTIFIERS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{,2}", "{0,3}?"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.builds(
        "{}{})".format, st.sampled_from(["(", "(?:", "(?=", "(?!", "(?P<x>"]), inner
    )
    return st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.builds("(?:{}){}".format, inner, QUANTIFIERS),
        grouped,
    )


EXPRESSIONS = st.recursive(LEAVES | PLACES, _grown, max_leaves=8)


@given(source=EXPRESSIONS, names=st.lists(NAMES, max_size=5))
def test_a_pattern_matches_what_python_matches(source, names):
    try:
        expected = re.compile(source)
    except re.error:
        return  # a name twice
    found = pattern(source).matching(names)
    assert found == {name for name in names if expected.fullmatch(name)}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (r".*\.(q|v)_proj", {"model.layers.0.self_attn.q_proj"}),
        (r"model\.layers\.\d+\..*", {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp"}),
        (r"^(?!.*lm_head).*(mlp|head)$", {"model.layers.0.mlp"}),
        (  # as Unsloth writes
            r"(?:.*?(?:text|model).*?(?:attn|mlp).*?(?:k_proj|q_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|k_proj)))",
            {"model.layers.0.self_attn.q_proj"},
        ),
        (r"q_proj", set()),
    ],
)
def test_the_usual_ones_are_run(source, found):
    names = {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp", "lm_head"}
    assert pattern(source).matching(names) == found


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (r"(a)\1", "is not read here"),
        ("(?<=a)b", "of a kind not read here"),
        ("(?i:a)", "of a kind not read here"),
        ("(?i)a", "of a kind not read here"),
        ("a**", "what is repeated is repeated"),
        ("a++", "what is repeated is repeated"),
        ("a{9999}", "not a number of repeats"),
        ("a{3,2}", "not a number of repeats"),
        ("*a", "nothing stands before"),
        ("(a", "is not closed"),
        ("a)", "that was not opened"),
        ("[a", "the class at character 1"),
        ("[[a]]", "the class at character 1"),
        ("[b-a]", "is not a class"),
        ("^*", "a place is repeated"),
        ("\\", "is not read here"),
        (r"\x41", "is not read here"),
        ("(" * 40 + "a" + ")" * 40, "nests more than 32 groups"),
        ("a" * (MOST_CHARACTERS + 1), "has 4,097 characters"),
    ],
)
def test_what_is_not_read_is_refused_by_name(source, why):
    with pytest.raises(UnsafeError, match=re.escape(why)):
        pattern(source)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["(a*)*b", "(a|a)*b", "(.*)*x", ".*" * 60 + "x", "(a{0,900}){0,900}b", "(a?){900}b"]
)
def test_what_would_take_python_forever_ends(source):
    try:
        assert pattern(source).matching(["a" * 90]) == set()
    except UnsafeError as error:
        assert "takes more than" in str(error)  # noqa: PT017 - either way it has ended


@pytest.mark.slow
def test_steps_are_counted_over_all_names():
    slow = pattern("(?:.*a)*" * 8 + "x")
    with pytest.raises(UnsafeError, match=r"takes more than 1,000,000 steps"):
        slow.matching([f"{'a' * 90}{number}" for number in range(1000)])


def test_the_ends_of_a_name_begin_at_its_dots():
    assert suffixes("a.b.c") == ("a.b.c", "b.c", "c")
