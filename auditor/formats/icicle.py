"""The modules of a model as an icicle: a row a level, as wide as their parameters.

As wide as what is stored or expected of them, whichever is more, so that what is missing has room.
What is amiss is never narrower than can be seen.
"""

from collections.abc import Iterator

from msgspec import Struct, field

from auditor.folded_names import first
from auditor.formats.module_tree import Node

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
