"""The elements of HTML and SVG, in which all text and every attribute is escaped."""

from collections.abc import Iterable, Mapping
from xml.etree.ElementTree import Element, tostring

from auditor.messages import printable

Child = Element | str | None
Attributes = Mapping[str, str | float | None]
_DOCTYPE = "<!doctype html>\n"


def element(tag: str, attributes: Attributes | None = None, /, *children: Child) -> Element:
    """Make an element with its children in order; a child or an attribute that is None is left out.

    Each text and each attribute is escaped as for a terminal; writing the element escapes markup.
    """
    made = Element(tag, _given(attributes or {}))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child and last is None:
            made.text = (made.text or "") + printable(child)
        elif child and last is not None:
            last.tail = (last.tail or "") + printable(child)
    return made


def _given(attributes: Attributes) -> dict[str, str]:
    return {
        name: printable(value) if isinstance(value, str) else f"{value:g}"
        for name, value in attributes.items()
        if value is not None
    }


def code(text: str) -> Element:
    """Make an element of code; a name without visible characters gets quotes."""
    return element("code", {}, text if text.strip() else f'"{text}"')


def linked(text: str, address: str | None) -> Child:
    """Link a text to an address, if there is one."""
    return element("a", {"href": address}, text) if address else text


def verbatim(tag: str, text: str) -> Element:
    """Make an element of our own style or script, whose line ends stay."""
    made = Element(tag)
    made.text = text
    return made


def table(
    columns: Mapping[str, bool], rows: Iterable[Iterable[Child]], /, **attributes: str
) -> Element:
    """Make a table of named columns that hold figures or text; the first cell heads its row."""
    figures = list(columns.values())
    head = (
        element("th", {"scope": "col", "class": _side(figure)}, name)
        for name, figure in columns.items()
    )
    body = element("tbody")
    for row in rows:
        first, *others = row
        cells = zip(others, figures[1:], strict=True)
        body.append(
            element(
                "tr",
                {},
                element("th", {"scope": "row"}, first),
                *(element("td", {"class": _side(figure)}, cell) for cell, figure in cells),
            )
        )
    return element("table", attributes, element("thead", {}, element("tr", {}, *head)), body)


def scrolled(label: str, inner: Element) -> Element:
    """Put a table that may be wider than a phone into a region that a keyboard scrolls."""
    region: Attributes = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": label}
    return element("div", region, inner)


def _side(figure: bool) -> str | None:  # noqa: FBT001 - of a column
    return "figure" if figure else None


def html(root: Element) -> str:
    """Write a complete page, in ASCII."""
    return f"{_DOCTYPE}{html_fragment(root)}\n"


def html_fragment(root: Element) -> str:
    """Write a part of a page, in ASCII."""
    part: bytes = tostring(root, encoding="us-ascii", method="html")
    return part.decode("ascii")


def svg(root: Element) -> str:
    """Write a complete drawing, in ASCII."""
    drawn: bytes = tostring(root, encoding="us-ascii")
    return drawn.decode("ascii") + "\n"
