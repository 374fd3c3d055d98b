"""An icicle as SVG that follows the width it is given: figures are percentages, heights pixels."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from auditor.formats.icicle import Cell
from auditor.formats.markup import Attributes, element

LEVEL = 28  # pixels of a row
_LABELLED = 0.02  # of the width; what is narrower has no label
_WIDE = 0.12  # of the width; what is narrower has no label on a phone
_LETTER = 7.0  # pixels that one takes at most, of figures and lower case
_NARROWEST = 640.0  # pixels of a drawing that shows counts: palette.css hides them on a phone
_HATCHED = frozenset({"missing", "mismatched", "unreadable"})


def height(cells: Sequence[Cell]) -> int:
    return LEVEL * (1 + max(cell.level for cell in cells))


def icicle(cells: Sequence[Cell], label: str) -> Element:
    """The drawing; what it shows must stand beside it as a table for those who cannot see it."""
    size: Attributes = {"width": "100%", "height": height(cells)}
    named = {"role": "img", "aria-label": label, "class": "icicle"}
    return element("svg", {**size, **named}, _hatch(), *map(_drawn, cells))


def _drawn(cell: Cell) -> Element:
    """A nested drawing, which cuts off what has no room in it."""
    place: Attributes = {
        "x": f"{100 * cell.left:.3f}%",
        "y": cell.level * LEVEL,
        "width": f"{100 * cell.width:.3f}%",
        "height": LEVEL,
    }
    whole = {"width": "100%", "height": "100%"}
    return element(
        "svg",
        place,
        element("title", {}, told(cell)),
        element("rect", {**whole, "class": f"s-{cell.drawn_as}"}),
        element("rect", {**whole, "class": "over"}) if cell.status in _HATCHED else None,
        _label(cell) if cell.width >= _LABELLED else None,
    )


def _label(cell: Cell) -> Element:
    name = cell.name if cell.level else cell.shown
    at: Attributes = {
        "x": 6,
        "y": LEVEL / 2 + 4,
        "class": None if cell.width >= _WIDE else "narrow",
    }
    times = f"{cell.modules:,} x " if cell.modules > 1 else ""
    count = f"{times}{cell.size // cell.modules:,}"
    if _LETTER * (len(name) + len(count) + 4) > cell.width * _NARROWEST:
        return element("text", at, name)  # a figure is never cut
    return element("text", at, name, element("tspan", {"dx": 8, "class": "count"}, count))


def told(cell: Cell) -> str:
    """A module in a sentence: `encoder.layer.{0-11}: equal, 12 modules, 85,054,464 parameters`."""
    parts = [cell.status]
    if cell.modules > 1:
        parts.append(f"{cell.modules:,} modules")
    if cell.stored is not None:
        parts.append(f"{cell.stored:,} parameters stored")
    if cell.expected is not None and cell.expected != cell.stored:
        parts.append(f"{cell.expected:,} expected")
    return f"{cell.shown}: {', '.join(parts)}"


def _hatch() -> Element:
    size: Attributes = {"id": "hatch", "width": 8, "height": 8}
    turned = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    line = element("line", {"x1": 0, "y1": 0, "x2": 0, "y2": 8, "class": "hatch"})
    return element("defs", {}, element("pattern", {**size, **turned}, line))
