"""Tables and paragraphs without rich, held to what rich prints of them."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from auditor.formats.plain_console import plain_console, without_trailing_spaces
from auditor.formats.plain_table import Column, table_lines, wrapped

WORDS = st.text("ab*^[].…漢é\u0301", min_size=1, max_size=30)
NAMES = st.tuples(st.integers(0, 4), WORDS).map(lambda pair: " " * pair[0] + pair[1])
# Rich takes a space at the end of a line with wide characters for a word that has to be cut.
PLAIN = st.lists(st.text("ab*^[].…", min_size=1, max_size=30), min_size=1, max_size=12)
ROWS = st.lists(st.tuples(NAMES, WORDS, PLAIN.map(" ".join)), max_size=4)
TEXTS = st.lists(WORDS, min_size=1, max_size=12).flatmap(
    lambda words: st.sampled_from((" ", "  ")).map(lambda space: space.join(words))
)
COLUMNS = (Column("module"), Column("parameters", right=True), Column("formula"))


def by_rich(rows, width, *, color):
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in COLUMNS[:-1]:
        side = "right" if column.right else "left"
        made.add_column(column.header, justify=side, no_wrap=True)
    made.add_column(COLUMNS[-1].header)
    for row in rows:
        made.add_row(*map(Text, row))
    text = io.StringIO()
    plain_console(text, color=color).print(made, width=width)
    return without_trailing_spaces(text).splitlines()


@given(ROWS, st.integers(10, 100), st.booleans())
def test_a_table_is_laid_out_as_rich_does_it(rows, width, color):
    made = table_lines(COLUMNS, rows, width, color=color)
    assert [line.rstrip() for line in made] == by_rich(rows, width, color=color)


@given(TEXTS, st.integers(4, 60))
def test_a_paragraph_is_wrapped_as_rich_does_it(text, width):
    out = io.StringIO()
    plain_console(out, color=False).print(Padding(Text(text), (0, 0, 0, 2)), width=width + 2)
    expected = without_trailing_spaces(out).splitlines()
    assert [f"  {line}".rstrip() for line in wrapped(text, width, fold=True)] == expected
