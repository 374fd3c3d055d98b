"""The modules of a model as an icicle plot.

A row is a level of the module tree. The width of a module shows its stored or its expected
parameters, whichever are more, so that missing modules are visible. Modules with a fault have a
minimum width. The colour shows the kind of a module, and a pattern over it shows its status.
"""

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from msgspec import Struct
from msgspec.structs import replace

from auditor.formats.escapes import WHOLE
from auditor.formats.markup import Attributes, element
from auditor.formats.module_tree import (
    EXPERTS,
    KINDS,
    OTHER,
    SEVERAL,
    Node,
    first_module,
    kinds_of,
    module_tree,
    modules_of,
)
from auditor.formats.tables import Name
from auditor.messages import printable
from auditor.report import Report, Unaudited

_QUIET = frozenset({"equal", "buffer", "quantization-data", "tied", "unchecked"})
_ALARMING = frozenset({"missing", "mismatched", "unexpected", "duplicate", "unreadable"})
_ROUNDING = 1e-6
_LEAST = 0.006  # least width of a module with a fault, as a fraction of the drawing


class Cell(Struct, frozen=True, kw_only=True):
    """A module, or several equal modules, and its place in the drawing.

    Counts are sums over the modules. `left` and `width` are fractions of the drawing's width, from
    0 to 1.
    """

    path: str  # folded: encoder.layer.{0-11}; the root is ""
    label: str  # the last part of the path, or `8 x expert`
    copies: int  # modules that fold into the last part of the path
    modules: int
    stored: int | None  # parameters
    expected: int | None
    share: float | None  # fraction of all stored parameters
    formula: str | None  # the formula for one of the modules
    status: str
    kind: str  # attention, feed-forward, ...
    is_expert: bool
    active: float | None = None  # fraction of the experts that process one token; None: unknown
    level: int
    left: float = 0.0
    width: float = 1.0
    below: tuple["Cell", ...] = ()

    @property
    def name(self) -> str:
        return Name(self.path) if self.level else WHOLE

    @property
    def alarms(self) -> bool:
        """Whether the status of this module or of a module inside it is an error or a warning."""
        return self.status in _ALARMING or any(cell.alarms for cell in self.below)

    @property
    def has_fault(self) -> bool:
        """Whether this module or a module inside it is not as expected."""
        return self.status not in _QUIET or any(cell.has_fault for cell in self.below)

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
    modules = modules_of(outcome)
    tree = module_tree(modules)
    formulas = {row.prefix: row.formula for row in outcome.modules}
    kinds = kinds_of(row.prefix for row in modules)
    expected, inactive = outcome.expected, 0  # expected parameters that a token does not use
    if expected and expected.active:
        inactive = expected.parameters - expected.active.parameters
    return cells(tree, formulas, kinds, inactive) if tree else ()


def cells(
    tree: Node,
    formulas: Mapping[str, str | None] | None = None,
    kinds: Mapping[str, str] | None = None,
    inactive: int = 0,
) -> tuple[Cell, ...]:
    """Return all cells of a tree, each before its children.

    `formulas` and `kinds` are keyed by prefix; `inactive` is a number of the experts' parameters.
    """

    def cell(node: Node, above: str, times: int, level: int) -> Cell:
        path = f"{above}.{node.name}" if above else node.name
        times *= node.modules
        stored, expected = (
            None if figure is None else figure * times for figure in (node.stored, node.expected)
        )
        prefix = first_module(path)
        is_expert = node.modules > 1 and above.rpartition(".")[2] == EXPERTS
        return Cell(
            path=path,
            label=f"{node.modules:,} \N{MULTIPLICATION SIGN} expert" if is_expert else node.name,
            copies=node.modules,
            modules=times,
            stored=stored,
            expected=expected,
            share=None if stored is None or not tree.stored else stored / tree.stored,
            formula=(formulas or {}).get(prefix),
            status=node.status,
            kind=(kinds or {}).get(prefix, OTHER),
            is_expert=is_expert,
            level=level,
            below=tuple(cell(child, path, times, level + 1) for child in node.below),
        )

    root = cell(tree, "", 1, 0)
    return tuple(_placed(root, 0.0, 1.0, _active(root, inactive)))


def _placed(cell: Cell, left: float, width: float, active: float | None) -> Iterator[Cell]:
    """Yield a cell and the cells inside it, with their places."""
    below, at = [], left
    for child, part in zip(cell.below, _widths(cell.below, width), strict=True):
        below.append([*_placed(child, at, part, active)])
        at += part
    yield replace(
        cell,
        left=left,
        width=width,
        active=active if cell.kind == EXPERTS else None,
        below=tuple(placed[0] for placed in below),
    )
    for placed in below:
        yield from placed


def _widths(cells: Sequence[Cell], room: float) -> list[float]:
    """Divide the width `room` among cells in proportion to their sizes.

    Each cell with a fault gets a minimum width in addition.
    """
    total = sum(cell.size for cell in cells)
    if not total:
        return [room / len(cells) for _ in cells]
    least = [min(_LEAST, room / len(cells)) if cell.has_fault else 0.0 for cell in cells]
    spare = room - sum(least)
    return [narrow + spare * cell.size / total for narrow, cell in zip(least, cells, strict=True)]


def _active(root: Cell, inactive: int) -> float | None:
    """Return the fraction of the experts that process one token.

    Return None unless the fraction is a whole number of experts, and every layer has as many.
    """
    experts = [cell for cell in _experts(root) if cell.expected]
    counts = {cell.copies for cell in experts}
    if not inactive or len(counts) != 1:
        return None
    [count] = counts
    active = 1 - inactive / sum(cell.expected or 0 for cell in experts)
    is_whole = abs(active * count - round(active * count)) < _ROUNDING
    return round(active * count) / count if is_whole and 0 < active < 1 else None


def _experts(cell: Cell) -> Iterator[Cell]:
    """Yield the outermost numbered experts inside a module."""
    if cell.is_expert:
        yield cell
    else:
        for child in cell.below:
            yield from _experts(child)


# --- the drawing, which follows the width that it is given --------------------------------------


LEVEL = 28  # pixels of a row
_THINNEST = 1e-5  # of the width
_LABELLED = 0.02  # of the width; narrower cells have no label
_WIDE = 0.12  # fraction of the width; narrower cells have no label on a phone
LETTER = 7.0  # pixels of a figure or a lower-case letter, at most
COMMON = 900.0  # pixels of a drawing in which no label is cut within a letter
_LEAST_LETTERS = 3  # of a cut label, with the dots
_NARROWEST = 640.0  # pixels of a drawing that shows counts: palette.css hides them on a phone
_DOWN, _ACROSS, _DOT = (0, 0, 0, 8), (0, 0, 8, 0), (4, 3, 4, 6)  # x1, y1, x2, y2
# Status -> the lines of a tile of its pattern, and the angle of the tile.
_PATTERNS = {
    "missing": ((_DOWN,), 45),
    "mismatched": ((_DOWN, _ACROSS), 45),
    "unexpected": ((_DOT,), 0),
    "unused": ((_DOWN,), 135),
    "duplicate": ((_DOWN,), 0),
    "newly-initialized": ((_ACROSS,), 0),
    "unreadable": ((_DOWN, _ACROSS), 0),
}


def height(cells: Sequence[Cell], level: int = LEVEL) -> int:
    return level * (1 + max(cell.level for cell in cells))


def icicle(
    cells: Sequence[Cell], label: str, level: int = LEVEL, common: float = COMMON
) -> Element:
    """Draw the cells, with rows of `level` pixels; labels have room in `common` pixels of width.

    For screen readers, a table next to the drawing must have the same data.
    """
    size: Attributes = {"width": "100%", "height": height(cells, level)}
    attributes = {"role": "img", "aria-label": label, "class": "icicle"}
    # A width of 0.000 % is no width to some readers: they draw the cell as wide as the page.
    drawn = (_drawn(cell, level, common) for cell in cells if cell.width >= _THINNEST)
    return element("svg", {**size, **attributes}, element("defs", {}, *patterns()), *drawn)


def _drawn(cell: Cell, level: int, common: float) -> Element:
    """Draw a cell as a nested drawing, which clips its text."""
    place: Attributes = {
        "x": f"{100 * cell.left:.3f}%",
        "y": cell.level * level,
        "width": f"{100 * cell.width:.3f}%",
        "height": level,
    }
    idle = None  # the veil over the fraction of the experts that a token does not use
    if cell.active:
        x, width = f"{100 * cell.active:.3f}%", f"{100 * (1 - cell.active):.3f}%"
        idle = element("rect", {"x": x, "width": width, "height": "100%", "class": "idle"})
    return element(
        "svg",
        place,
        element("title", {}, sentence_of(cell)),
        *swatch(cell.kind, cell.drawn_as),
        idle,
        _label(cell, level, common) if cell.width >= _LABELLED else None,
    )


def swatch(kind: str, status: str) -> Iterator[Element]:
    """Yield the rectangle of a kind, and the pattern of a status over it if it has one."""
    full_size = {"width": "100%", "height": "100%"}
    yield element("rect", {**full_size, "class": f"k-{kind} s-{status}"})
    if status in _PATTERNS:
        yield element("rect", {**full_size, "class": f"over p-{status}"})


def legend_of(cells: Sequence[Cell]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, status, text) for each kind that occurs, then for each status that occurs."""
    kinds = {cell.kind for cell in cells}
    for kind in (kind for kind in KINDS if kind in kinds):
        text = f"{kind} kinds" if kind == SEVERAL else kind.replace("-", " ")
        is_lit = kind == EXPERTS and any(cell.active for cell in cells)
        yield kind, "equal", f"{text} (pale: not used by one token)" if is_lit else text
    statuses = {cell.drawn_as for cell in cells}
    if plain := sorted(statuses & _QUIET):
        yield SEVERAL, "equal", f"no pattern: {', '.join(plain)}"
    yield from ((SEVERAL, status, status) for status in sorted(statuses - _QUIET))


def _label(cell: Cell, level: int, common: float) -> Element | None:
    """Return a cell's name, cut if it is too long, and its parameter count if there is room.

    Return None if there is no room for a cut name.
    """
    name = printable(cell.label if cell.level else cell.name)
    room = int((cell.width * common - 8) / LETTER)
    if len(name) > room:
        if room < _LEAST_LETTERS:
            return None
        name = f"{name[: room - 1]}\N{HORIZONTAL ELLIPSIS}"
    at: Attributes = {
        "x": 6,
        "y": level / 2 + 4,
        "class": None if cell.width >= _WIDE else "narrow",
    }
    times = f"{cell.modules:,} x " if cell.modules > 1 else ""
    count = f"{times}{cell.size // cell.modules:,}"
    if LETTER * (len(name) + len(count) + 4) > cell.width * min(common, _NARROWEST):
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


def patterns() -> Iterator[Element]:
    """Yield the definitions of the patterns of statuses."""
    for status, (ends, angle) in _PATTERNS.items():
        size: Attributes = {"id": f"p-{status}", "width": 8, "height": 8}
        turned = {"patternUnits": "userSpaceOnUse", "patternTransform": f"rotate({angle})"}
        places = (dict(zip(("x1", "y1", "x2", "y2"), line, strict=True)) for line in ends)
        lines = (element("line", {**place, "class": "hatch"}) for place in places)
        yield element("pattern", {**size, **turned}, *lines)
