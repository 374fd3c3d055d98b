"""An outcome in a notebook: the head of its page, and a drawing of its modules."""

from base64 import b64encode
from xml.etree.ElementTree import Element

from auditor.formats import View, as_svg, verdict
from auditor.formats.markup import element, html_fragment
from auditor.formats.verdict import address
from auditor.report import Diagnosis, Report, Unaudited

_COLORS = {"clean": "#1a7f37", "findings": "#c4320a", "unaudited": "#8a6100"}


def fragment(outcome: Report | Unaudited) -> str:
    """HTML without styles or scripts of its own: a notebook has those of everything else in it.

    The drawing is an image, so that its colours stay inside.
    """
    name = outcome.model or outcome.requested
    link = address(outcome)
    title = element("a", {"href": link}, name) if link else name
    word, _ = verdict.word(outcome)
    color = {"style": f"color: {_COLORS[outcome.verdict]}"}
    shown = element(
        "div",
        {},
        element("p", {}, element("strong", {}, title), _said(outcome.target)),
        element("p", {}, element("strong", color, word), " ", verdict.sentence(outcome)),
        element("p", {}, verdict.account(outcome)),
        *map(_cause, outcome.diagnosis),
        _drawing(outcome, name) if outcome.modules or outcome.parts else None,
    )
    return html_fragment(shown)


def _said(target: str | None) -> str:
    return f" \N{MIDDLE DOT} {target}" if target else ""


def _cause(one: Diagnosis) -> Element:
    why, fix = element("strong", {}, f"{one.cause}: "), element("strong", {}, "Fix: ")
    return element("p", {}, why, one.summary, element("br"), fix, one.fix)


def _drawing(outcome: Report | Unaudited, name: str) -> Element:
    [drawn] = as_svg.files([outcome], View()).values()
    data = b64encode(drawn.encode()).decode("ascii")
    said = {"alt": f"The modules of {name}", "style": "max-width: 100%"}
    return element("img", {"src": f"data:image/svg+xml;base64,{data}", **said})
