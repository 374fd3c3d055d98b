"""--format svg: the modules of a model as an icicle plot, for slides and model cards.

A row is a level of the module tree. The width of a module shows its stored or its expected
parameters, whichever are more, so that missing modules are visible. Modules with a fault have a
minimum width.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files as resources
from xml.etree.ElementTree import Element

from msgspec import Struct

from auditor.formats import View, verdict
from auditor.formats.as_json import modules_object
from auditor.formats.escapes import WHOLE
from auditor.formats.markup import Attributes, element, svg, verbatim
from auditor.formats.module_tree import Node, module_tree, modules_of
from auditor.formats.tables import Name
from auditor.formats.text import cut_middle
from auditor.messages import printable
from auditor.names import first
from auditor.report import Report, Unaudited

_QUIET = frozenset({"equal", "buffer", "quantization-data", "tied", "unchecked"})
_ALARMING = frozenset({"missing", "mismatched", "unexpected", "duplicate", "unreadable"})
_LEAST = 0.006  # least width of a module with a fault, as a fraction of the drawing


class Cell(Struct, frozen=True, kw_only=True):
    """A module, or several equal modules, and its place in the drawing.

    Counts are sums over the modules. `left` and `width` are fractions of the drawing's width, from
    0 to 1.
    """

    path: str  # folded: encoder.layer.{0-11}; the root is ""
    label: str  # the last part of the path
    modules: int
    stored: int | None  # parameters
    expected: int | None
    share: float | None  # fraction of all stored parameters
    formula: str | None  # the formula for one of the modules
    status: str
    level: int
    left: float
    width: float
    below: tuple["Cell", ...] = ()

    @property
    def name(self) -> str:
        return Name(self.path) if self.level else WHOLE

    @property
    def alarms(self) -> bool:
        """Whether the status of this module or of a module inside it is an error or a warning."""
        return self.status in _ALARMING or any(cell.alarms for cell in self.below)

    @property
    def drawn_as(self) -> str:
        """The status to draw: `equal` instead of `differs` if no module inside has a fault."""
        return "equal" if self.status == "differs" and not self.alarms else self.status

    @property
    def size(self) -> int:
        """The number of stored or of expected parameters, whichever is larger."""
        return max(self.stored or 0, self.expected or 0)


def cells_of_outcome(outcome: Report | Unaudited) -> tuple[Cell, ...]:
    """Return the cells of a model's drawing; () if it has no modules."""
    tree = module_tree(modules_of(modules_object(outcome)))
    formulas = {row.prefix: row.formula for row in outcome.modules}
    return cells(tree, formulas) if tree else ()


def cells(tree: Node, formulas: Mapping[str, str | None] | None = None) -> tuple[Cell, ...]:
    """Return all cells of a tree, each before its children; `formulas` are keyed by prefix."""
    place = _Places(formulas or {}, tree.stored)
    return tuple(_flat(place.cell(_Module(tree, "", 1), 0, 0.0, 1.0)))


def _flat(cell: Cell) -> Iterator[Cell]:
    yield cell
    for child in cell.below:
        yield from _flat(child)


class _Module:
    """A node of a module tree, with its path and the sums over its folded modules."""

    def __init__(self, node: Node, above: str, times: int) -> None:
        self.label, self.status = node.name, node.status
        self.times = times * node.modules
        self.path = f"{above}.{node.name}" if above else node.name
        self.stored, self.expected = (
            None if figure is None else figure * self.times
            for figure in (node.stored, node.expected)
        )
        self.size = max(self.stored or 0, self.expected or 0)
        self.below = [_Module(child, self.path, self.times) for child in node.below]
        self.has_fault: bool = self.status not in _QUIET or any(
            module.has_fault for module in self.below
        )


class _Places(Struct, frozen=True):
    """A builder of cells: it places the modules of one model."""

    formulas: Mapping[str, str | None]
    total: int | None  # stored parameters

    def cell(self, module: _Module, level: int, left: float, width: float) -> Cell:
        below, at = [], left
        for child, part in zip(module.below, _widths(module.below, width), strict=True):
            below.append(self.cell(child, level + 1, at, part))
            at += part
        has_share = module.stored is not None and self.total
        return Cell(
            path=module.path,
            label=module.label,
            modules=module.times,
            stored=module.stored,
            expected=module.expected,
            share=(module.stored or 0) / (self.total or 1) if has_share else None,
            formula=self._formula(module.path),
            status=module.status,
            level=level,
            left=left,
            width=width,
            below=tuple(below),
        )

    def _formula(self, path: str) -> str | None:
        """Return the formula of the first module that a path names; None if the path was cut."""
        try:
            return self.formulas.get(first(path))
        except ValueError:
            return None


def _widths(modules: list[_Module], room: float) -> list[float]:
    """Divide the width `room` among the modules in proportion to their sizes.

    Each module with a fault gets a minimum width in addition.
    """
    total = sum(module.size for module in modules)
    if not total:
        return [room / len(modules) for _ in modules]
    least = [min(_LEAST, room / len(modules)) if module.has_fault else 0.0 for module in modules]
    spare = room - sum(least)
    return [
        narrow + spare * module.size / total for narrow, module in zip(least, modules, strict=True)
    ]


# --- the drawing, which follows the width that it is given --------------------------------------


LEVEL = 28  # pixels of a row
_LABELLED = 0.02  # of the width; narrower cells have no label
_WIDE = 0.12  # fraction of the width; narrower cells have no label on a phone
_LETTER = 7.0  # pixels of a figure or a lower-case letter, at most
_COMMON = 900.0  # pixels of a drawing in which no label is cut within a letter
_LEAST_LETTERS = 3  # of a cut label, with the dots
_NARROWEST = 640.0  # pixels of a drawing that shows counts: palette.css hides them on a phone
_HATCHED = frozenset({"missing", "mismatched", "unreadable"})


def height(cells: Sequence[Cell]) -> int:
    return LEVEL * (1 + max(cell.level for cell in cells))


def icicle(cells: Sequence[Cell], label: str) -> Element:
    """Draw the cells; for screen readers, a table next to the drawing must have the same data."""
    size: Attributes = {"width": "100%", "height": height(cells)}
    attributes = {"role": "img", "aria-label": label, "class": "icicle"}
    return element("svg", {**size, **attributes}, _hatch(), *map(_drawn, cells))


def _drawn(cell: Cell) -> Element:
    """Draw a cell as a nested drawing, which clips its text."""
    place: Attributes = {
        "x": f"{100 * cell.left:.3f}%",
        "y": cell.level * LEVEL,
        "width": f"{100 * cell.width:.3f}%",
        "height": LEVEL,
    }
    full_size = {"width": "100%", "height": "100%"}
    return element(
        "svg",
        place,
        element("title", {}, sentence_of(cell)),
        element("rect", {**full_size, "class": f"s-{cell.drawn_as}"}),
        element("rect", {**full_size, "class": "over"}) if cell.status in _HATCHED else None,
        _label(cell) if cell.width >= _LABELLED else None,
    )


def _label(cell: Cell) -> Element | None:
    """Return a cell's name, cut if it is too long, and its parameter count if there is room.

    Return None if there is no room for a cut name.
    """
    name = printable(cell.label if cell.level else cell.name)
    room = int((cell.width * _COMMON - 8) / _LETTER)
    if len(name) > room:
        if room < _LEAST_LETTERS:
            return None
        name = f"{name[: room - 1]}\N{HORIZONTAL ELLIPSIS}"
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


def sentence_of(cell: Cell) -> str:
    """Return `encoder.layer.{0-11}: equal, 12 modules, 85,054,464 parameters stored`."""
    parts = [cell.status]
    if cell.modules > 1:
        parts.append(f"{cell.modules:,} modules")
    if cell.stored is not None:
        parts.append(f"{cell.stored:,} parameters stored")
    if cell.expected is not None and cell.expected != cell.stored:
        parts.append(f"{cell.expected:,} expected")
    return f"{cell.name}: {', '.join(parts)}"


def _hatch() -> Element:
    size: Attributes = {"id": "hatch", "width": 8, "height": 8}
    turned = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    line = element("line", {"x1": 0, "y1": 0, "x2": 0, "y2": 8, "class": "hatch"})
    return element("defs", {}, element("pattern", {**size, **turned}, line))


# --- as a file ----------------------------------------------------------------------------------

_WIDTH = 1200  # pixels; drawings scale
_SUBTITLE = 160  # most characters of the line below a model's name
_HEAD, _GAP = 64, 24  # pixels above each drawing, and below it


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one drawing, in which the models stand one below the other."""
    drawing = element("svg", {"xmlns": "http://www.w3.org/2000/svg", "width": _WIDTH})
    drawing.append(verbatim("style", palette()))
    drawing.append(element("rect", {"width": "100%", "height": "100%", "class": "paper"}))
    top = 0
    for outcome in outcomes:
        top += _add(drawing, outcome, top)
    drawing.set("height", str(top))
    drawing.set("viewBox", f"0 0 {_WIDTH} {top}")
    return {"report.svg": svg(drawing)}


def palette() -> str:
    """Return the style of drawings: the colours of statuses, light and dark."""
    return (resources(__package__) / "template" / "palette.css").read_text(encoding="ascii")


def _add(drawing: Element, outcome: Report | Unaudited, top: int) -> int:
    """Draw one model below `top`, and return the height of its drawing."""
    placed = cells_of_outcome(outcome)
    stored = outcome.observed.parameters if outcome.observed else None
    count = f"{stored:,} parameters stored" if stored is not None else "parameters not known"
    name = outcome.model or outcome.requested
    drawing.append(element("text", {"x": 16, "y": top + 28, "class": "title"}, name))
    under = f"{outcome.verdict}: {count}"
    if outcome.verdict != "clean":
        under = cut_middle(f"{verdict.word(outcome)[0]}: {verdict.sentence(outcome)}", _SUBTITLE)
    drawing.append(element("text", {"x": 16, "y": top + 50, "class": "under"}, under))
    if not placed:
        return _HEAD + _GAP
    at = {"x": 16, "y": top + _HEAD, "width": _WIDTH - 32, "height": height(placed)}
    drawing.append(element("svg", at, icicle(placed, f"The modules of {name}")))
    return _HEAD + height(placed) + _GAP
