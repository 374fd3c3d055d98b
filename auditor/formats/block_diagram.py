"""The blocks of a model as people draw transformers: layers once, with `x 12`, the input below.

A box has the name of a module, its share of the parameters, its formula, and the pattern of
its status; letters of formulas stand below with their values. The order of the boxes follows the
kinds and names of modules, because a checkpoint does not store the order of the computation.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from auditor.formats.icicle import Cell, sentence_of, swatch
from auditor.formats.markup import element
from auditor.formats.module_tree import EXPERTS
from auditor.messages import printable
from auditor.report import Report, Unaudited

WIDTH = 340  # pixels
_BOX, _HEAD, _GAP, _INSET = 40, 24, 6, 10  # pixels: of a box, a frame's title, between and inside
_LETTERS, _FORMULA = 26, 44  # most characters of a name, and of a formula
_MOST = 16  # boxes
_SYMBOLS = 6  # most letters that are explained
# The places of siblings, from the input on: the first pattern that a name fits.
_PLACES = (
    re.compile(r"embed|wte|wpe|^shared$|patch"),
    re.compile(r"input.*norm|pre_.*norm|ln_?1|norm1|layer_norm1"),
    re.compile(r"^encoder|^(self_)?att"),
    re.compile(r"^decoder|post_attention|ln_?2|norm2"),
    re.compile(r"intermediate|mlp|feed_?forward|ffn|fc"),
    re.compile(r"pooler|^(ln_f|norm|final\w*)$"),
    re.compile(r"head|cls|classifier|score"),
)
_BETWEEN = 4  # the place of a name that fits no pattern
_KINDS = {"embeddings": 0, "attention": 2, "head": 6}


class Group(NamedTuple):
    """A box by itself, or the boxes of layers that are equal."""

    layers: Cell | None  # None: a box by itself
    boxes: tuple[Cell, ...]


def groups(root: Cell) -> tuple[Group, ...]:
    """Return the blocks of a model, from its input to its output; () if it has no modules."""
    return tuple(_groups(root)) if root.below else ()


def _groups(cell: Cell) -> Iterator[Group]:
    for child in sorted(cell.below, key=_rank):
        if not (child.size or child.has_fault):
            continue  # tied: its numbers are another module's
        if _is_layer(child) and child.below:
            boxes = child.below
            while len(boxes) == 1 and boxes[0].below:  # such as `layer` of T5
                boxes = boxes[0].below
            yield Group(child, tuple(sorted(boxes, key=_rank)))
        elif any(map(_has_layers, child.below)):
            yield from _groups(child)
        else:
            yield Group(None, (child,))


def _is_layer(cell: Cell) -> bool:
    """Whether a cell is a numbered module, or several; experts are not drawn by themselves."""
    is_numbered = cell.label.startswith("{") or cell.label.isdecimal()
    return is_numbered and not cell.is_expert and cell.kind != EXPERTS


def _has_layers(cell: Cell) -> bool:
    return _is_layer(cell) or any(map(_has_layers, cell.below))


def _rank(cell: Cell) -> int:
    """Return the place among siblings: embeddings, encoder, layers, decoder, head."""
    by_name = (at for at, pattern in enumerate(_PLACES) if pattern.search(cell.label))
    place = next(by_name, None)
    return _KINDS.get(cell.kind, _BETWEEN) if place is None else place


def diagram(root: Cell, outcome: Report | Unaudited) -> Element | None:
    """Draw the blocks of a model; return None if no module is known."""
    found, more = _cut(groups(root))
    if not found:
        return None
    symbols = outcome.expected.legend[:_SYMBOLS] if outcome.expected else ()
    drawn, top = [], 0.0
    if more:
        drawn.append(_text(f"and {more} more", 2, top + 16))
        top += _HEAD
    for group in reversed(found):
        drawn.append(_drawn(group, root.size, top))
        top += _height(group) + _GAP
    for symbol in symbols:
        top += 18
        drawn.append(_text(f"{symbol.letter} = {symbol.value:,} {symbol.key}", 2, top))
    height = top + _GAP
    size = {"viewBox": f"0 0 {WIDTH} {height:g}", "preserveAspectRatio": "xMinYMin meet"}
    label = f"The blocks of {outcome.model or outcome.requested}"
    name = {"class": "icicle blocks", "role": "img", "aria-label": label}
    return element("svg", {"width": WIDTH, "height": height, **size, **name}, *drawn)


def _cut(found: Sequence[Group]) -> tuple[list[Group], int]:
    """Return the first groups that have few boxes together, and the number of other groups."""
    kept: list[Group] = []
    for group in found:
        if sum(len(one.boxes) for one in (*kept, group)) > _MOST and kept:
            break
        kept.append(group._replace(boxes=group.boxes[:_MOST]))
    return kept, len(found) - len(kept)


def _height(group: Group) -> float:
    inside = len(group.boxes) * (_BOX + _GAP)
    return inside + _HEAD + _GAP if group.layers else _BOX


def _drawn(group: Group, total: int, top: float) -> Element:
    """Draw one group, whose first box is the lowest."""
    inset = _INSET if group.layers else 0
    parts = []
    if group.layers:
        frame = {"width": WIDTH - 2, "height": _height(group) - 2, "x": 1, "y": 1}
        parts.append(element("rect", {**frame, "class": "k-several s-equal"}))
        parts.append(_text(f"{group.layers.path}{_times(group.layers)}", inset, 17))
    at = _HEAD if group.layers else 0
    for box in reversed(group.boxes):
        parts.append(_boxed(box, total, inset, at))
        at += _BOX + _GAP
    place = {"y": top, "width": WIDTH, "height": _height(group)}
    return element("svg", place, *parts)


def _boxed(cell: Cell, total: int, inset: int, top: float) -> Element:
    """Draw a box with a name, a share, and a formula or a status."""
    width = WIDTH - 2 * inset
    last = 2 if _is_layer(cell) else 1  # `encoder.3`, not `3`
    name = ".".join(cell.path.split(".")[-last:])
    name += "" if cell.is_expert else _times(cell)
    part = cell.size / total if cell.share is None and total else cell.share
    is_plain = cell.drawn_as in {"equal", "unchecked"}
    under = (cell.formula or "") if is_plain else cell.drawn_as
    place = {"x": inset, "y": top, "width": width, "height": _BOX}
    return element(
        "svg",
        place,
        element("title", {}, sentence_of(cell)),
        *swatch(cell.kind, cell.drawn_as),
        _text(_short(name, _LETTERS), 8, 17),
        element("text", {"x": width - 8, "y": 17, "class": "share"}, f"{part or 0:.1%}"),
        _text(_short(under, _FORMULA), 8, 33),
    )


def _times(cell: Cell) -> str:
    return f" x {cell.copies:,}" if cell.copies > 1 else ""


def _text(text: str, x: float, y: float) -> Element:
    return element("text", {"x": x, "y": y}, _short(text, _FORMULA))


def _short(text: str, most: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
