"""--format badge: a small drawing for model cards, `tensors | 202/202`, coloured by verdict.

It counts the expected tensors that are stored in the right shape. A verdict other than clean is a
word too, because not everybody sees its colour.
"""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from auditor.findings import Mismatched, Missing, NewlyInitialized
from auditor.formats import View, verdict
from auditor.formats.markup import Attributes, element, svg
from auditor.report import Report, Unaudited

_LABEL = "tensors"
_HEIGHT, _GAP, _LETTER, _MARGIN = 20, 4, 6.2, 7  # pixels; a letter's width is set by textLength
_LIGHT, _DARK = "#ffffff", "#14171a"
# Each pair of text and ground has a contrast of at least 4.5, by WCAG's formula.
_COLOURS = {
    "OK": (_LIGHT, "#1a7f37"),
    "WARNING": (_DARK, "#efb02f"),
    "ERROR": (_LIGHT, "#b3261e"),
    "NOT AUDITED": (_LIGHT, "#59636e"),
}
_NOT_STORED = (Missing.kind, Mismatched.kind, NewlyInitialized.kind)


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one drawing, in which the models' badges stand one below the other."""
    badges = [_badge(outcome, at * (_HEIGHT + _GAP)) for at, outcome in enumerate(outcomes)]
    width = max((float(badge.get("width", 0)) for badge in badges), default=0)
    height = len(badges) * (_HEIGHT + _GAP) - _GAP
    size = {"width": width, "height": height, "viewBox": f"0 0 {width:g} {height}"}
    return {
        "badge.svg": svg(element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size}, *badges))
    }


def text_of(outcome: Report | Unaudited) -> str:
    """Return `202/202`, with the verdict if it is not clean: `201/202 error`.

    Return the verdict alone if not all tensors are known.
    """
    word = verdict.word(outcome)[0]
    parts = outcome.parts or (outcome,)
    observed = outcome.observed
    if outcome.unread or any(part.expected is None for part in parts):
        return word.lower()
    expected = sum(part.expected.tensors for part in parts if part.expected)
    found = [finding for part in parts for finding in (*part.findings, *part.ignored)]
    lacking = sum(one.count for one in found if one.kind in _NOT_STORED)
    named = " named" if observed is None or observed.parameters is None else ""  # no shape is known
    text = f"{max(0, expected - lacking):,}/{expected:,}{named}"
    return text if word == "OK" else f"{text} {word.lower()}"


def _badge(outcome: Report | Unaudited, top: int) -> Element:
    text = text_of(outcome)
    ink, ground = _COLOURS[verdict.word(outcome)[0]]
    left, right = (_LETTER * len(part) + 2 * _MARGIN for part in (_LABEL, text))
    is_id = verdict.address(outcome) is not None  # a path would be public in a card
    model = f"{outcome.model}: " if is_id else ""
    name = f"{model}{_LABEL} {text}"
    size: Attributes = {
        "y": top,
        "width": left + right,
        "height": _HEIGHT,
        "role": "img",
        "aria-label": name,
    }
    return element(
        "svg",
        size,
        element("title", {}, name),
        element("rect", {"width": left, "height": _HEIGHT, "fill": "#3a3f46"}),
        element("rect", {"x": left, "width": right, "height": _HEIGHT, "fill": ground}),
        _text(_LABEL, _MARGIN, _LIGHT),
        _text(text, left + _MARGIN, ink),
    )


def _text(text: str, x: float, ink: str) -> Element:
    font: Attributes = {"font-family": "Verdana, DejaVu Sans, sans-serif", "font-size": 11}
    place: Attributes = {"x": x, "y": 14, "fill": ink, "textLength": _LETTER * len(text)}
    return element("text", {**place, **font}, text)
