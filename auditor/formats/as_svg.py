"""--format svg: where the parameters of a model are, as a drawing for slides and model cards."""

from collections.abc import Mapping, Sequence
from importlib.resources import files as resources
from xml.etree.ElementTree import Element

from auditor.formats import View
from auditor.formats.as_json import modules_object
from auditor.formats.icicle import cells, height, icicle
from auditor.formats.markup import element, svg, verbatim
from auditor.formats.module_tree import module_tree, modules_of
from auditor.report import Report, Unaudited

_WIDTH = 1200  # pixels; drawings scale
_HEAD, _GAP = 64, 24  # pixels above each drawing, and below it


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """One drawing of all models, one below the other."""
    drawn = element("svg", {"xmlns": "http://www.w3.org/2000/svg", "width": _WIDTH})
    drawn.append(verbatim("style", palette()))
    drawn.append(element("rect", {"width": "100%", "height": "100%", "class": "paper"}))
    top = 0
    for outcome in outcomes:
        top += _add(drawn, outcome, top)
    drawn.set("height", str(top))
    drawn.set("viewBox", f"0 0 {_WIDTH} {top}")
    return {"report.svg": svg(drawn)}


def palette() -> str:
    """The colours of statuses, and how a drawing looks, light and dark."""
    return (resources(__package__) / "template" / "palette.css").read_text(encoding="ascii")


def _add(drawn: Element, outcome: Report | Unaudited, top: int) -> int:
    """Draw one model from `top` on; the height that it takes."""
    tree = module_tree(modules_of(modules_object(outcome)))
    stored = outcome.observed.parameters if outcome.observed else None
    counted = f"{stored:,} parameters stored" if stored is not None else "parameters not known"
    name = outcome.model or outcome.requested
    drawn.append(element("text", {"x": 16, "y": top + 28, "class": "title"}, name))
    under = f"{outcome.verdict}: {counted}"
    drawn.append(element("text", {"x": 16, "y": top + 50, "class": "under"}, under))
    if tree is None:
        return _HEAD + _GAP
    placed = cells(tree)
    at = {"x": 16, "y": top + _HEAD, "width": _WIDTH - 32, "height": height(placed)}
    drawn.append(element("svg", at, icicle(placed, f"The modules of {name}")))
    return _HEAD + height(placed) + _GAP
