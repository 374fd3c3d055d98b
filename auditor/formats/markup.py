"""The elements of HTML and SVG, in which all text and every attribute is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, tostring

from auditor.formats.tables import Name, Table, cell_text, number_columns
from auditor.messages import printable

Child = Element | str | None
Attributes = Mapping[str, str | float | None]
_DOCTYPE = "<!doctype html>\n"


def element(tag: str, attributes: Attributes | None = None, /, *children: Child) -> Element:
    """Make an element with its children in order; leave out children and attributes that are None.

    Each text and each attribute is escaped as for a terminal; writing the element escapes markup.
    """
    texts = {
        name: printable(value) if isinstance(value, str) else f"{value:g}"
        for name, value in (attributes or {}).items()
        if value is not None
    }
    parent = Element(tag, texts)
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
            last = child
        elif child and last is None:
            parent.text = (parent.text or "") + printable(child)
        elif child and last is not None:
            last.tail = (last.tail or "") + printable(child)
    return parent


def code(text: str) -> Element:
    """Make a `code` element; a name without visible characters gets quotes."""
    return element("code", {}, text if text.strip() else f'"{text}"')


def linked(text: str, address: str | None) -> Child:
    """Return the text as a link to the address, or the text alone if there is no address."""
    return element("a", {"href": address}, text) if address else text


def verbatim(tag: str, text: str) -> Element:
    """Make a style or script element from our own text, without escaping it."""
    parent = Element(tag)
    parent.text = text
    return parent


def html_table(table: Table, **attributes: str) -> Element:
    """Make an HTML table; a cell may be an Element, and each row's first cell is its heading."""
    sides = ["figure" if is_number else None for is_number in number_columns(table)]

    def child(cell: Any) -> Child:
        if isinstance(cell, Element):
            return cell
        return code(cell) if isinstance(cell, Name) else cell_text(cell)

    def cells(row: Sequence[Any]) -> Iterable[Element]:
        yield element("th", {"scope": "row"}, child(row[0]))
        for cell, side in zip(row[1:], sides[1:], strict=True):
            yield element("td", {"class": side}, child(cell))

    headings = (
        element("th", {"scope": "col", "class": side}, name)
        for name, side in zip(table.columns, sides, strict=True)
    )
    head = element("thead", {}, element("tr", {}, *headings))
    body = element("tbody", {}, *(element("tr", {}, *cells(row)) for row in table.rows))
    return element("table", attributes, head, body)


def scrolled(label: str, inner: Element) -> Element:
    """Put a table, which may be wider than a phone, into a region that can scroll by keyboard."""
    region: Attributes = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": label}
    return element("div", region, inner)


def html(root: Element) -> str:
    """Return a complete page as text, in ASCII."""
    return f"{_DOCTYPE}{html_fragment(root)}\n"


def html_fragment(root: Element) -> str:
    """Return a part of a page as text, in ASCII."""
    content: bytes = tostring(root, encoding="us-ascii", method="html")
    return content.decode("ascii")


def svg(root: Element) -> str:
    """Return a complete drawing as text, in ASCII."""
    content: bytes = tostring(root, encoding="us-ascii")
    return content.decode("ascii") + "\n"
