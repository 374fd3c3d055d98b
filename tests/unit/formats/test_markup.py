"""Markup: whatever a name says, it stays text."""

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from support.outcomes.examples import HOSTILE

from auditor.formats.markup import element, html, html_table, svg
from auditor.formats.tables import SimpleTable
from auditor.messages import printable

TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    (
        "<img src=x onerror=alert(1)>",
        "</title><script>alert(2)</script>",
        "'\"><svg>",
        "&lt;",
        "]]>",
        *HOSTILE,
    )
)


class Read(HTMLParser):
    """The tags, attributes and texts of a page, as a browser takes them."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@given(TEXT, TEXT, TEXT)
def test_names_are_text_and_nothing_else(before, within, after):
    page = html(element("p", {"title": within}, before, element("b", {}, within), after))
    assert page.isascii()
    read = Read()
    read.feed(page)
    assert read.tags == ["p", "b"]
    assert dict(read.attributes) == {"title": printable(within)}
    assert read.text.strip("\n") == "".join(map(printable, (before, within, after)))


@given(TEXT, st.floats(0, 1e6))
def test_a_drawing_is_xml_with_the_same_content(text, number):
    drawn = svg(element("svg", {"width": number, "height": None}, element("title", {}, text)))
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    assert root.get("height") is None
    assert float(root.get("width")) == float(f"{number:g}")
    assert (root[0].text or "") == printable(text)


def test_a_table_marks_the_cells_that_head_a_column_or_a_row():
    table = html_table(SimpleTable("files", ("file", "bytes"), (("a", 1024), ("b", None))))
    assert [cell.get("scope") for cell in table.iter("th")] == ["col", "col", "row", "row"]
    assert [(cell.text, cell.get("class")) for cell in table.iter("td")] == [
        ("1,024", "figure"),
        (None, "figure"),
    ]
