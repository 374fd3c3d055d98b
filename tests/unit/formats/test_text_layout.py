"""Lines for a terminal: they wrap as rich wraps them, lose nothing, and line up."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from auditor.formats.text import columns, header_row, lines_text, styled, wrapped

WORDS = st.text(st.sampled_from("abc.-{}_한é"), min_size=1, max_size=60)
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)
WIDTHS = st.integers(16, 60)
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
    table = columns([header_row("key", "meaning"), ("k", "experts a token is given to")], width=20)
    assert lines_text(table) == "key meaning\nk   experts a token\n    is given to\n"


def test_labels_stand_beside_their_text():
    rows = [(("OK  ", "bold green"), "All tensors are stored."), ("no", "")]
    lines = columns(rows, gap=2, width=22)
    assert lines_text(lines) == "OK    All tensors are\n      stored.\nno\n"


def test_colours_are_codes_around_the_text():
    line = (("error: missing", "bold red"), (" (2 names)", ""))
    assert (
        lines_text([line, styled("")], color=True)
        == "\x1b[1;31merror: missing\x1b[0m (2 names)\n\n"
    )
    assert lines_text([line]) == "error: missing (2 names)\n"
