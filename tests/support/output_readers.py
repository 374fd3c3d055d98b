"""Readers of outputs: each fails if a hostile name is more than text to what reads its format."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from markdown_it import MarkdownIt

# What no terminal shows, but for the characters that str.isprintable denies.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]"
)
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)  # of the logs of GitHub and Azure
NUMBER = re.compile(r"[+-]?[0-9.]+")
FORMULA = re.compile("\\s*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_TAGS = """
a article bdi body br button circle code dd defs details div dl dt fieldset footer form h1 h2 h3
head header html i input label legend li line main meta nav noscript option output p pattern
rect script section select small span strong style sub summary svg table tbody td text th thead
title tr tspan ul
"""
_ATTRIBUTES = """
aria-hidden aria-label aria-labelledby aria-live autocomplete charset class content dx height
hidden href http-equiv id lang name open patterntransform patternunits placeholder
preserveaspectratio role scope spellcheck tabindex type value viewbox width x x1 x2 xmlns y y1
y2
"""
TAGS, ATTRIBUTES = frozenset(_TAGS.split()), frozenset(_ATTRIBUTES.split())
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
MARKDOWN_HTML = r"(</?details( open)?>|<summary><b>\w+: [\w-]+</b></summary>|<!-- -->|\s)*"
# What GitHub makes a link or a mention of, wherever it stands in text.
LINKED = re.compile(r"@\w|#\d|GH-\d|://|www\.", re.IGNORECASE)


def assert_harmless_text(text: str) -> None:
    """Assert that a terminal shows the text as it is, and that no log takes a line for more."""
    unseen = [char for char in text if char != "\n" and not char.isprintable()]
    assert not unseen
    assert not INVISIBLE.search(text)
    assert not COMMAND.search(text), COMMAND.search(text)


def read_json(text: str) -> list:
    assert_harmless_text(text)
    assert text.isascii()
    try:
        return [json.loads(text)] if text else []
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def names_in_json(text: str) -> set[str]:
    findings = (finding for outcome in read_json(text) for finding in outcome["findings"])
    return {name for finding in findings for name in finding["names"]}


class _Page(HTMLParser):
    """The tags, attributes and addresses of a page, as a browser takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.scripts: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.addresses.update(value or "" for name, value in attrs if name in {"href", "src"})
        if tag == "script":
            self.scripts.append(dict(attrs).get("type"))


def read_html(text: str) -> None:
    assert_harmless_text(text)
    page = _Page()
    page.feed(text)
    page.close()
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    own = re.compile(r"https://huggingface\.co/|models/[\w.-]+\.html$|\w+\.(csv|json)$")
    assert [one for one in page.addresses if not own.match(one)] == []
    assert sum(kind != "application/json" for kind in page.scripts) <= 1


def read_svg(text: str) -> None:
    assert_harmless_text(text)
    tags = {one.tag.rpartition("}")[2] for one in ET.fromstring(text).iter()}  # noqa: S314 - ours
    assert tags <= TAGS


def read_markdown(text: str) -> None:
    assert_harmless_text(text)
    tokens = MARKDOWN.parse(text)
    children = [child for token in tokens for child in token.children or ()]
    html = [one for one in (*tokens, *children) if one.type in {"html_block", "html_inline"}]
    assert [one.content for one in html if not re.fullmatch(MARKDOWN_HTML, one.content)] == []
    links = [one.attrs["href"] for one in children if one.type == "link_open"]
    assert all(str(link).startswith("https://huggingface.co/") for link in links)
    assert not [one for one in children if one.type == "image"]
    plain = [one.content for one in children if one.type == "text"]
    assert [one for one in plain if LINKED.search(one)] == []
    assert not [one for one in tokens if one.type in {"fence", "code_block"}]
    _assert_even_tables([one.type for one in tokens])


def _assert_even_tables(types: list[str]) -> None:
    """Assert that each row of a table has as many cells as the table's heading."""
    cells = ""
    for kind in types:
        if kind == "table_open":
            cells = ""
        elif kind in {"td_open", "th_open"}:
            cells += "|"
        elif kind == "tr_close":
            cells += " "
        elif kind == "table_close":
            assert len(set(cells.split())) == 1


def read_csv(text: str) -> None:
    assert_harmless_text(text)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    cells = [cell for row in rows for cell in row]
    assert [one for one in cells if FORMULA.match(one) and not NUMBER.fullmatch(one)] == []


def read_latex(text: str) -> None:
    assert_harmless_text(text)
    assert r"\input" not in text
    assert re.findall(r"\\end\{\w+\*?\}", text) == [
        one.replace("begin", "end") for one in re.findall(r"\\begin\{\w+\*?\}", text)
    ]


WORKFLOW_COMMAND = re.compile(r"::(error|warning|notice) ((?:file|title)=[^:,]*,?)+::(.*)")


def read_workflow_commands(text: str) -> None:
    """Assert that each line is one command, whose text is no other command."""
    for line in text.splitlines():
        command = WORKFLOW_COMMAND.fullmatch(line)
        assert command, line
        assert_harmless_text(f"{command[2]} {command[3]}\n")


READERS: Mapping[str, Callable[[str], object]] = {
    "terminal": assert_harmless_text,
    "json": read_json,
    "agent": read_json,
    "sarif": read_json,
    "cyclonedx": read_json,
    "github": read_workflow_commands,
    "html": read_html,
    "svg": read_svg,
    "badge": read_svg,
    "markdown": read_markdown,
    "csv": read_csv,
    "latex": read_latex,
}
