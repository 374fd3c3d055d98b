"""The modules of a model as an icicle: a row a level, as wide as their parameters.

As wide as what is stored or expected of them, whichever is more, so that what is missing has room.
What is amiss is never narrower than can be seen.
"""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from msgspec import Struct, field

from auditor.formats.markup import Attributes, element
from auditor.formats.module_tree import Node
from auditor.names import first

_QUIET = frozenset({"equal", "buffer", "quantization-data", "tied", "unchecked"})
_ALARMING = frozenset({"missing", "mismatched", "unexpected", "duplicate", "unreadable"})
_LEAST = 0.006  # of the whole width, of what is amiss


class Cell(Struct, frozen=True, kw_only=True):
    """One module, or several that are alike, and its place; the figures are those of all of them.

    `left` and `width` are parts of the whole width, 0 to 1.
    """

    path: str  # folded: encoder.layer.{0-11}; the root is ""
    name: str  # the last part of it
    modules: int  # that it stands for
    tensors: int | None
    stored: int | None  # parameters
    expected: int | None
    status: str
    level: int
    left: float
    width: float
    below: tuple["Cell", ...] = field(default=())

    @property
    def alarms(self) -> bool:
        """Whether anything is wrong in it, and not only unused or newly initialized."""
        return self.status in _ALARMING or any(one.alarms for one in self.below)

    @property
    def drawn_as(self) -> str:
        """Its status; what differs by nothing that alarms is drawn as if it did not."""
        return "equal" if self.status == "differs" and not self.alarms else self.status

    @property
    def shown(self) -> str:
        """Its path for people."""
        return self.path if self.level else "(whole model)"

    @property
    def first(self) -> str | None:
        """The path of the first of the modules that are alike; None where the path was cut."""
        try:
            return first(self.path)
        except ValueError:
            return None

    @property
    def size(self) -> int:
        """Parameters: what is stored or expected, whichever is more."""
        return max(self.stored or 0, self.expected or 0)


def cells(tree: Node) -> tuple[Cell, ...]:
    """All cells of a tree, a module before those below it."""
    return tuple(_all(_placed(_Module(tree, "", 1), 0, 0.0, 1.0)))


def _all(cell: Cell) -> Iterator[Cell]:
    yield cell
    for one in cell.below:
        yield from _all(one)


class _Module:
    """A node of module_tree, with its path and how often it is there."""

    def __init__(self, node: Node, above: str, times: int) -> None:
        self.name, alike, *figures, self.status, children = node
        self.times = times * alike
        self.path = f"{above}.{self.name}" if above else self.name
        self.tensors, self.stored, self.expected = (
            None if figure is None else figure * self.times for figure in figures
        )
        self.size = max(self.stored or 0, self.expected or 0)
        self.below = [_Module(child, self.path, self.times) for child in children]
        self.amiss: bool = self.status not in _QUIET or any(one.amiss for one in self.below)


def _placed(module: _Module, level: int, left: float, width: float) -> Cell:
    below = []
    at = left
    for one, part in zip(module.below, _widths(module.below, width), strict=True):
        below.append(_placed(one, level + 1, at, part))
        at += part
    return Cell(
        path=module.path,
        name=module.name,
        modules=module.times,
        tensors=module.tensors,
        stored=module.stored,
        expected=module.expected,
        status=module.status,
        level=level,
        left=left,
        width=width,
        below=tuple(below),
    )


def _widths(modules: list[_Module], room: float) -> list[float]:
    """In proportion to their sizes, and together the whole room."""
    whole = sum(one.size for one in modules)
    if not whole:
        return [room / len(modules) for _ in modules]
    least = [min(_LEAST, room / len(modules)) if one.amiss else 0.0 for one in modules]
    spare = room - sum(least)
    return [narrow + spare * one.size / whole for narrow, one in zip(least, modules, strict=True)]


# --- drawn as SVG, which follows the width it is given -----------------------------------------


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
