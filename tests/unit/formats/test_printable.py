"""How untrusted text is escaped and cut."""

import json
import re
from ast import literal_eval

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.outcomes.examples import HOSTILE

from auditor.formats.json_values import json_text
from auditor.formats.text import columns, cut_middle, cut_name, lines_text, styled, wrapped
from auditor.messages import printable, quoted

TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
PIECES = st.sampled_from((":", "#", "[", "error", "]", " ", "\x1b", "\u3164", "\\", "a", ".", "\n"))
LINES = st.lists(PIECES, max_size=20).map("".join) | st.sampled_from(HOSTILE) | TEXT
COMMAND = re.compile(r"^\s*::|##", re.MULTILINE)
WIDTHS = st.integers(16, 60)


@given(LINES)
def test_no_character_is_left_that_is_not_printable(text):
    assert printable(text).isprintable()


@given(LINES)
def test_escaping_twice_changes_nothing(text):
    assert printable(printable(text)) == printable(text)


@given(st.text(st.characters(max_codepoint=0x33F)))
def test_visible_text_without_doubled_signs_is_unchanged(text):
    visible = "".join(char for char in text if char.isprintable() and char not in ":#")
    assert printable(f"{visible}:#:#{visible}") == f"{visible}:#:#{visible}"


@given(LINES, WIDTHS, st.integers(0, 8))
def test_no_line_of_a_text_is_a_command_however_it_is_cut(text, width, indent):
    shown = [
        printable(text),
        quoted(text),
        cut_middle(text, width),
        cut_name(text, width),
        lines_text(wrapped(((text, "bold"), (" ", ""), (text, "")), width, indent)),
        lines_text(columns([(text, text), (text, "x")], width=width)),
        lines_text([styled(f"{text}: {text}")]),
        json_text([text]),
    ]
    assert [one for one in shown if COMMAND.search(one)] == []


@given(LINES)
def test_a_quoted_name_and_a_name_in_json_are_read_back(text):
    assert json.loads(json_text(text)) == text
    if len(text) <= 100:
        assert literal_eval(quoted(text)) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bert.encoder", "bert.encoder"),
        ("weiß 中文", "weiß 中文"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u202e\u2066", r"\u202e\u2066"),
        ("\u200b\ufeff\u2028\xa0", r"\u200b\ufeff\u2028\xa0"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("C:\\models", r"C:\models"),
        ("::error::x", r":\x3aerror:\x3ax"),
        ("::: a:b", r":\x3a: a:b"),
        ("x##[error]y", r"x#\x23[error]y"),
        ("### #", r"#\x23# #"),
        ("a\u3164b\ufe0f", r"a\u3164b\ufe0f"),
    ],
)
def test_a_character_that_is_not_shown_is_escaped(text, shown):
    assert printable(text) == shown


@given(TEXT | st.sampled_from(HOSTILE), st.integers(3, 40))
def test_cut_text_fits(text, room):
    assert cell_len(cut_middle(printable(text), room)) <= room
    assert len(cut_middle(printable(text), room)) <= room


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("bert.encoder", 12, "bert.encoder"),
        ("bert.encoder", 11, "bert.…coder"),
        ("bert.encoder", 10, "bert.…oder"),
        ("中文中文", 8, "中文中文"),
        ("中文中文", 7, "中…文"),
        ("e" + "\u0301" * 300, 5, "e\u0301…\u0301\u0301"),
    ],
)
def test_both_ends_of_a_long_name_stay(text, room, shown):
    assert cut_middle(text, room) == shown
