"""Chat templates of untrusted models are parsed, in time that grows with their length alone."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from auditor.companions.chat_template import (
    DEEPEST,
    MOST_CHARACTERS,
    MOST_DIGITS,
    STEP,
    NotCheckedError,
    read_template,
)
from auditor.companions.template_turns import Turns

pytest.importorskip("jinja2", reason="parses the templates")

PIECES = (
    "'",
    '"',
    "\\",
    "a",
    "(",
    "]",
    "-",
    "not ",
    "1",
    "_",
    "\n",
    " ",
    "{%",
    "%}",
    "{{",
    "}}",
    "{#",
)


@given(tag=st.lists(st.sampled_from(PIECES)).map("".join))
@example(tag="'" + "\\'" * 10)
@example(tag="'a\\")
def test_every_quote_of_a_tag_lies_in_a_string_so_that_no_string_is_read_twice(tag):
    strings = [step.span() for step in STEP.finditer(tag) if step["string"]]
    quotes = {match.start() for match in re.finditer("['\"]", tag)}
    assert quotes <= {at for start, stop in strings for at in range(start, stop)}


@pytest.mark.parametrize(
    "text",
    [
        "{{ '" + "\\'" * 24_000,
        "{{ '" + '"' * 48_000,
        "{% raw %}" * 5_000,
        "{#" * 24_000,
        "{{ x }}" * 7_000,
        " " * 47_000 + "{%-",
    ],
)
def test_a_long_template_is_parsed(text):
    assert len(text) <= MOST_CHARACTERS
    read_template(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ '" + "\\'" * 1_000_000, "has 2,000,004 characters, expected at most 50,000"),
        ("{{ " + "(" * (DEEPEST + 1), "is nested deeper than 40 levels"),
        ("{{ 1" + "_0" * MOST_DIGITS + " }}", "has a number of more than 640 digits"),
    ],
)
def test_a_template_beyond_a_bound_is_not_checked(text, why):
    with pytest.raises(NotCheckedError, match=re.escape(why)):
        read_template(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{{ 'a' }}", None),
        ("{{ '" + "(" * (DEEPEST + 1) + "' }}", None),
        ("{{ 1" + "0" * (MOST_DIGITS - 1) + " }}", None),
        ("{{ 'a }}", "line 1: unexpected char"),
        ("{% if x %}", "line 1: Unexpected end of template"),
    ],
)
def test_a_template_within_the_bounds_has_the_fault_that_jinja2_reports(text, fault):
    found = read_template(text)
    assert isinstance(found, Turns) if fault is None else str(found).startswith(fault)
