"""A bounded pattern matches what Python's re matches, and hostile patterns end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.bounded import patterns
from auditor.bounded.patterns import (
    MOST_CHARACTERS,
    PatternNotFollowedError,
    check_pattern,
    names_beginning,
    names_containing,
    names_matching,
)

NAMES = st.lists(st.sampled_from(["a", "b", "ab", "q_proj", "layers", "0", "12"]), max_size=4).map(
    ".".join
)
LEAVES = st.sampled_from(
    ["a", "b", "q_proj", "layers", "0", ".", r"\.", r"\d", r"\w", r"\S", "[ab]", "[^.]", "[0-9]"]
)
PLACES = st.sampled_from(
    ["^", "$", r"\b", r"\B", r"\-", "[]a]", r"[\d_]", "", r"(?<=\.)", "(?<!a)"]
)
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


FUNCTIONS = [
    (names_matching, re.fullmatch),
    (names_beginning, re.match),
    (names_containing, re.search),
]


@pytest.mark.parametrize(("ours", "pythons"), FUNCTIONS)
@given(sources=st.lists(EXPRESSIONS, max_size=3), names=st.lists(NAMES, max_size=5))
def test_patterns_match_what_python_matches(ours, pythons, sources, names):
    try:
        expected = {name for name in names if any(pythons(one, name) for one in sources)}
    except re.error:
        return  # a group's name twice
    assert ours(sources, names) == expected


def test_usual_patterns_are_followed(subtests):
    for source, found in [
        (r".*\.(q|v)_proj", {"model.layers.0.self_attn.q_proj"}),
        (r"^(?!.*lm_head).*(mlp|head)$", {"model.layers.0.mlp"}),
        (  # as Unsloth writes
            r"(?:.*?(?:text|model).*?(?:attn|mlp).*?(?:k_proj|q_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|k_proj)))",
            {"model.layers.0.self_attn.q_proj"},
        ),
    ]:
        with subtests.test(source=source, found=found):
            names = {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp", "lm_head"}
            assert names_matching([source], names) == found


def test_unsupported_syntax_is_refused(subtests):
    for source, why in [
        (r"(a)\1", "is not supported"),
        ("(?<=ab)b", "the group at character 1"),
        ("(?i:a)", "the group at character 1"),
        ("a**", "repeats a repeat"),
        ("a{9999}", "not a supported number of repeats"),
        ("*a", "nothing precedes"),
        ("(a", "is not closed"),
        ("a)", "closes a group that is not open"),
        ("[a", "the class at character 1"),
        ("[b-a]", "is not a class"),
        ("^*", "repeats a place"),
        (r"\x41", "is not supported"),
        ("(" * 40 + "a" + ")" * 40, "nests more than 32 groups"),
        ("a" * (MOST_CHARACTERS + 1), "has 4,097 characters"),
    ]:
        with subtests.test(source=source, why=why):
            with pytest.raises(PatternNotFollowedError, match=re.escape(why)):
                check_pattern(source)
            with pytest.raises(PatternNotFollowedError):
                names_matching(["a", source], ["a"])


@pytest.fixture
def fewer_steps(monkeypatch):
    """A twentieth of the steps, which take a twentieth of a second."""
    monkeypatch.setattr(patterns, "MOST_STEPS", 100_000)


@pytest.mark.usefixtures("fewer_steps")
def test_a_hostile_pattern_matches_nothing_or_is_not_followed(subtests):
    for source, names in [
        ("(a*)*b", ["a" * 90]),
        (".*" * 300 + "=", ["a" * 10_000]),
        ("(a?){900}b", ["a" * 90]),
        ("(.?.?.?.?.?.?.?.?.?.?){30}x", [f"{number}" * 40 for number in range(3_000)]),
        ("(((a{60}){60}){60}){60}", ["a" * 100]),
        ("(?=" * 30 + ".*" + ")" * 30 + "x", ["a" * 90] * 10),
    ]:
        with subtests.test(source=source, names=names):
            try:
                assert names_matching([source], names) == set()
            except PatternNotFollowedError as error:
                assert "it takes more than" in str(error) or "it has more than" in str(error)  # noqa: PT017


@pytest.mark.usefixtures("fewer_steps")
def test_steps_are_counted_over_all_names():
    names = [f"{number:040}" for number in range(2_500)]
    assert names_matching([".*.*c"], names[:100]) == set()
    with pytest.raises(PatternNotFollowedError, match=r"takes more than 100,000 steps"):
        names_matching([".*.*c"], names)


def test_a_name_with_a_line_break_is_not_decided():
    with pytest.raises(PatternNotFollowedError, match="has a line break"):
        names_matching(["a$"], ["a\n"])
