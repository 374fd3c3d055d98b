"""Markdown, as a reader of Markdown takes it: whatever a name says, it stays text."""

import re

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.outcomes.examples import EXAMPLES, HOSTILE
from support.output_readers import LINKED

from auditor.formats import View
from auditor.formats.escapes import code_span, escaped_markdown, table_cell
from auditor.formats.registry import FORMATS
from auditor.messages import printable

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
NASTY = st.sampled_from(
    (
        "<img src=x onerror=alert(1)>",
        "[click](http://evil.example)",
        "![](x)",
        "``` ` ``",
        "a|b\\|c",
        "*b* _i_ ~~s~~",
        "&lt;b&gt;",
        "@somebody, see https://evil.example and www.evil.example",
        "# heading",
        "- item",
        "1. item",
        "> said",
        *HOSTILE,
    )
)
TEXT = st.text(st.characters(exclude_categories=())) | NASTY


def inline(markdown):
    """The parts of a paragraph."""
    tokens = READER.parse(f"x {markdown} x")
    assert [one.type for one in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    return tokens[1].children


@given(TEXT)
@example("@octocat, owner/name#1 and GH-1")
def test_a_reader_of_markdown_shows_an_escaped_text_unchanged_without_links(text):
    parts = inline(escaped_markdown(text))
    assert {one.type for one in parts} <= {"text", "html_inline"}
    assert {one.content for one in parts if one.type == "html_inline"} <= {"<!-- -->"}
    assert "".join(one.content for one in parts if one.type == "text") == f"x {printable(text)} x"
    plain = [one.content for one in parts if one.type == "text"]
    assert [one for one in plain if LINKED.search(one)] == []


@given(TEXT, TEXT)
@example("a\\|b", "|")
def test_a_cell_of_a_table_is_one_cell_whatever_it_holds(first, second):
    table = f"| {table_cell(first)} | {table_cell(second)} |\n| --- | --- |\n"
    tokens = READER.parse(table)
    assert sum(one.type == "th_open" for one in tokens) == 2
    shown = [one.children or () for one in tokens if one.type == "inline"]
    assert {part.type for parts in shown for part in parts} <= {"text", "code_inline"}


@given(TEXT.filter(lambda text: text.strip(" ")))
@example("`")
@example(" a ")
def test_a_reader_of_markdown_shows_a_name_in_code_unchanged(name):
    (_, part, _) = inline(code_span(name))
    assert part.type == "code_inline"
    assert part.content == printable(name)


def test_a_report_holds_the_markup_that_it_is_made_of_and_no_other(subtests):
    for name in ["every-kind", "hostile", "pipeline"]:
        with subtests.test(name=name):
            outcome = EXAMPLES[name]()
            [text] = FORMATS["markdown"]([outcome], View(depth=9)).values()
            tokens = READER.parse(text)
            html = [one.content for one in tokens if one.type == "html_block"]
            known = r"(</?details( open)?>|<summary><b>\w+: [\w-]+</b></summary>|\s)*"
            assert [one for one in html if not re.fullmatch(known, one)] == []
            children = [one for token in tokens for one in token.children or ()]
            links = [one.attrs["href"] for one in children if one.type == "link_open"]
            assert all(one.startswith("https://huggingface.co/") for one in links)
            assert len(links) <= 1
            rows = sum(one.type == "tr_open" for one in tokens)
            cells = sum(one.type in {"td_open", "th_open"} for one in tokens)
            assert cells == 5 * rows
