"""How untrusted text is escaped and cut."""

import io
import json
import re
from ast import literal_eval

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from support.outcomes.examples import HOSTILE

from auditor.formats.json_values import json_text
from auditor.formats.text import (
    columns,
    cut_middle,
    cut_name,
    lines_text,
    styled,
    wrapped,
)
from auditor.messages import printable, quoted

TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
PIECES = st.sampled_from((":", "#", "[", "error", "]", " ", "\x1b", "\u3164", "\\", "a", ".", "\n"))
LINES = st.lists(PIECES, max_size=20).map("".join) | st.sampled_from(HOSTILE) | TEXT
COMMAND = re.compile(r"^\s*::|##", re.MULTILINE)
WIDTHS = st.integers(16, 60)


@given(LINES)
def test_an_escaped_text_is_printable_and_escaping_twice_changes_nothing(text):
    assert printable(text).isprintable()
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


SHOWN = (
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
)


def test_a_character_that_is_not_shown_is_escaped():
    for text, shown in SHOWN:
        assert printable(text) == shown


@given(TEXT | st.sampled_from(HOSTILE), st.integers(3, 40))
def test_cut_text_fits(text, room):
    assert cell_len(cut_middle(printable(text), room)) <= room
    assert len(cut_middle(printable(text), room)) <= room


def test_both_ends_of_a_long_name_stay():
    assert cut_middle("bert.encoder", 12) == "bert.encoder"
    assert cut_middle("bert.encoder", 11) == "bert.…coder"
    assert cut_middle("中文中文", 7) == "中…文"
    assert cut_middle("e" + "\u0301" * 300, 5) == "e\u0301…\u0301\u0301"


# --- lines for a terminal -------------------------------------------------------------------------


WORDS = st.text(st.sampled_from("abc.-{}_한é"), min_size=1, max_size=60)
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)
CELLS = st.text(st.sampled_from("ab,한█"), max_size=12)
TABLES = st.integers(1, 4).flatmap(
    lambda count: st.lists(st.lists(CELLS, min_size=count, max_size=count), min_size=1, max_size=5)
)


def wrapped_by_rich(text: str, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, _environ={})
    console.print(Text(text, overflow="fold"))
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


@given(SENTENCES, WIDTHS)
def test_lines_wrap_as_rich_wraps_them(text, width):
    assert lines_text(wrapped(text, width)) == wrapped_by_rich(text, width)


@given(SENTENCES, SENTENCES, WIDTHS, st.integers(0, 8))
def test_styles_and_indents_change_no_text(first, second, width, indent):
    styled = lines_text(wrapped(((first, "bold"), (second, "")), width + indent, indent))
    assert styled == lines_text(wrapped(first + second, width + indent, indent))
    assert all(line.startswith(" " * indent) for line in styled.splitlines() if line)
    assert styled.split() == lines_text(wrapped(first + second, width)).split()


@given(TABLES, st.sets(st.integers(0, 3)))
def test_columns_line_up(rows, right):
    lines = lines_text(columns(rows, right=right)).splitlines()
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row, line in zip(rows, lines, strict=True):
        start = 0
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            fill = width - cell_len(cell) if at in right else 0
            before = start + fill
            cells = "".join(char * cell_len(char) for char in line)  # a cell for each position
            assert cells[before : before + cell_len(cell)] == "".join(c * cell_len(c) for c in cell)
            start += width + 1


def test_a_last_column_goes_on_below_itself():
    table = columns(
        [[("key", "bold"), ("meaning", "bold")], ("k", "experts a token is given to")], width=20
    )
    assert lines_text(table) == "key meaning\nk   experts a token\n    is given to\n"


def test_colours_are_codes_around_the_text():
    line = (("error: missing", "bold red"), (" (2 names)", ""))
    assert (
        lines_text([line, styled("")], color=True)
        == "\x1b[1;31merror: missing\x1b[0m (2 names)\n\n"
    )
    assert lines_text([line]) == "error: missing (2 names)\n"
