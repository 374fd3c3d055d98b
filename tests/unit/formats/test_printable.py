"""printable and cut: what strangers wrote, made safe to show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.outcomes.examples import HOSTILE

from auditor.formats.text import cut_middle
from auditor.messages import printable

TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(TEXT)
def test_nothing_is_left_that_is_not_printable(text):
    assert printable(text).isprintable()


@given(TEXT)
def test_what_was_printable_is_left_alone(text):
    kept = "".join(char for char in text if char.isprintable())
    assert printable(kept) == kept


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
    ],
)
def test_what_is_not_visible_is_written_out(text, shown):
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
