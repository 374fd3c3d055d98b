"""--format svg: the modules of a model as an icicle plot and blocks, for slides and model cards."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files as resources
from xml.etree.ElementTree import Element

from auditor.formats import View, verdict
from auditor.formats.block_diagram import WIDTH, diagram
from auditor.formats.icicle import (
    COMMON,
    LETTER,
    cells_of_outcome,
    height,
    icicle,
    legend_of,
    swatch,
)
from auditor.formats.markup import Attributes, element, svg, verbatim
from auditor.formats.text import cut_middle, short_count
from auditor.report import Report, Unaudited

_WIDTH, _HEIGHT = 1200, 630  # pixels, the size of a card in social media; drawings scale
_MARGIN, _TOP, _BOTTOM = 24, 120, 580  # pixels; the drawing is between top and bottom
_TALLEST = 72  # pixels of a row
_ROOT = re.compile(r":root \{(.*?)\}", re.DOTALL)  # of the light scheme, then of the dark one
_VARIABLE, _USE = re.compile(r"--([\w-]+): (#\w+)"), re.compile(r"var\(--([\w-]+)\)")
_USUAL_FONT, _SHEET_FONT = 12, 14  # pixels of labels, in palette.css
_TITLE, _SUBTITLE = 70, 140  # most characters of a model's name, and of the line below it


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one drawing, in which the models stand one below the other."""
    cards = [(one, f"{verdict.word(one)[0]}: {verdict.sentence(one)}") for one in outcomes]
    return {"report.svg": _sheet(cards)}


def explained(outcome: Report | Unaudited) -> str:
    """Return the drawing of what a config implies; the files' contents are not compared."""
    under = f"{outcome.target}: what the config implies; the weights were not compared"
    return _sheet([(outcome, under)])


def _sheet(cards: Sequence[tuple[Report | Unaudited, str]]) -> str:
    height = _HEIGHT * len(cards)
    size: Attributes = {"width": _WIDTH, "height": height, "viewBox": f"0 0 {_WIDTH} {height}"}
    namespace = {"xmlns": "http://www.w3.org/2000/svg", "class": "sheet"}
    drawing = element("svg", {**namespace, **size})
    drawing.append(verbatim("style", plain_palette()))
    drawing.append(element("rect", {"width": "100%", "height": "100%", "class": "paper"}))
    for at, (outcome, under) in enumerate(cards):
        place: Attributes = {"y": at * _HEIGHT, "width": _WIDTH, "height": _HEIGHT}
        drawing.append(element("svg", place, *_card(outcome, under)))
    return svg(drawing)


def palette() -> str:
    """Return the style of drawings: the colours of kinds and the patterns of statuses."""
    return (resources(__package__) / "template" / "palette.css").read_text(encoding="ascii")


def plain_palette() -> str:
    """Return the style without variables, which readers outside a browser draw black.

    The dark scheme repeats each rule that has one of its colours.
    """
    css = palette()
    light, dark = (dict(_VARIABLE.findall(block)) for block in _ROOT.findall(css))
    rules = [line for line in css.splitlines() if line.startswith((".", "svg", "@media (max"))]
    # Without paint-order, its outline covers the text.
    rules = [rule for rule in rules if "paint-order" not in rule]
    plain = [_USE.sub(lambda use: light[use[1]], rule) for rule in rules]
    varied = [rule for rule in rules if dark.keys() & set(_USE.findall(rule))]
    colours = light | dark
    plain += ["@media (prefers-color-scheme: dark) {"]
    plain += ["  " + _USE.sub(lambda use: colours[use[1]], rule) for rule in varied]
    return "\n".join((*plain, "}", ""))


def _card(outcome: Report | Unaudited, under: str) -> Iterator[Element]:
    """Yield the name of a model, the line below it, its size, its modules and their legend."""
    name = outcome.model or outcome.requested
    yield _line(cut_middle(name, _TITLE), 46, "title")
    yield _line(cut_middle(under, _SUBTITLE), 74, "under")
    yield _line(_sizes(outcome), 100, "under")
    placed = cells_of_outcome(outcome)
    if not placed:
        return
    level = min(_TALLEST, (_BOTTOM - _TOP) // (1 + max(cell.level for cell in placed)))
    blocks = diagram(placed[0], outcome)
    width = _WIDTH - 2 * _MARGIN - (0 if blocks is None else WIDTH + _MARGIN)
    at = {"x": _MARGIN, "y": _TOP, "width": width, "height": height(placed, level)}
    common = COMMON if blocks is None else width * _USUAL_FONT / _SHEET_FONT
    yield element("svg", at, icicle(placed, f"The modules of {name}", level, common))
    if blocks is not None:
        at = {"x": _MARGIN + width + _MARGIN, "y": _TOP, "width": WIDTH, "height": _BOTTOM - _TOP}
        blocks.attrib.update({key: f"{value}" for key, value in at.items()})
        yield blocks
    left, y = float(_MARGIN), _BOTTOM + 8
    for kind, status, text in legend_of(placed):
        wide = 40 + LETTER * len(text)
        if left + wide > _WIDTH:
            left, y = _MARGIN, y + 20
        square: Attributes = {"x": left, "y": y, "width": 14, "height": 14, "class": "icicle"}
        yield element("svg", square, *swatch(kind, status))
        yield element("text", {"x": left + 19, "y": y + 12, "class": "key"}, text)
        left += wide


def _line(text: str, y: int, style: str) -> Element:
    return element("text", {"x": _MARGIN, "y": y, "class": style}, text)


def _sizes(outcome: Report | Unaudited) -> str:
    """Return `46.7B total, 12.9B active`; the active count is known for mixtures of experts."""
    stored = outcome.observed.parameters if outcome.observed else None
    expected = outcome.expected
    if stored is None and expected is None:
        return "parameters not known"
    if expected and expected.active and stored in {None, expected.parameters}:
        active = f" \N{MIDDLE DOT} {short_count(expected.active.parameters)} active"
        return f"{short_count(expected.parameters)} total{active}"
    if stored is not None:
        return f"{stored:,} parameters stored"
    return f"{expected.parameters if expected else 0:,} parameters expected"
