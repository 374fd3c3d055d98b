"""The functions behind the methods of `auditor.presented`: JSON, HTML for notebooks, frames."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

from msgspec.structs import astuple

from auditor.comparing import Comparison
from auditor.formats import View, as_csv, as_json, as_svg, comparison, verdict
from auditor.formats.markup import element, html_fragment, linked
from auditor.reconciler.rows import ModuleRow
from auditor.reconciler.tensor_rows import TensorRow
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import VALUES, Diagnosis, Report, Unaudited

if TYPE_CHECKING:
    import pandas as pd

_COLORS = {"clean": "#1a7f37", "findings": "#c4320a", "unaudited": "#8a6100"}


def to_dict(value: Report | Unaudited | Comparison) -> dict[str, Any]:
    if isinstance(value, Comparison):
        return comparison.as_object(value)
    return as_json.as_object(value)


to_json = as_json.render


# --- in a notebook ------------------------------------------------------------------------------


def html(outcome: Report | Unaudited) -> str:
    """Return HTML without styles or scripts, which would apply to the whole notebook.

    The drawing is an image, so its colours apply to it alone.
    """
    name = outcome.model or outcome.requested
    word, _ = verdict.word(outcome)
    color = {"style": f"color: {_COLORS[outcome.verdict]}"}
    target = f" \N{MIDDLE DOT} {outcome.target}" if outcome.target else ""
    article = element(
        "div",
        {},
        element("p", {}, element("strong", {}, linked(name, verdict.address(outcome))), target),
        element("p", {}, element("strong", color, word), " ", verdict.sentence(outcome)),
        element("p", {}, verdict.account(outcome)),
        *(_cause(why, cause) for why, cause in verdict.causes_to_print(outcome)),
        _drawing(outcome, name) if outcome.modules or outcome.parts else None,
    )
    return html_fragment(article)


def _cause(why: str, diagnosis: Diagnosis) -> Element:
    fix = element("strong", {}, f"Fix ({diagnosis.cause}): ")
    return element("p", {}, *((why, element("br")) if why else ()), fix, diagnosis.fix)


def _drawing(outcome: Report | Unaudited, name: str) -> Element:
    [svg] = as_svg.files([outcome], View()).values()
    data = b64encode(svg.encode()).decode("ascii")
    attributes = {"alt": f"The modules of {name}", "style": "max-width: 100%"}
    return element("img", {"src": f"data:image/svg+xml;base64,{data}", **attributes})


# --- frames -------------------------------------------------------------------------------------

_COUNTS = ("tensors", "elements", "parameters", "trainable", "bytes", "expected", "difference")
_FINDING_COUNTS = ("count", "parameters", "explains", "findings")
_READ_COUNTS = ("numbers", "read", "nan", "inf", "zeros")
_STATISTICS = ("absmax", "minimum", "maximum", "mean", "std")


def _frame(
    columns: Sequence[str], rows: Iterable[tuple[Any, ...]], counts: Sequence[str]
) -> "pd.DataFrame":
    """Return a frame whose counts are nullable integers."""
    import pandas as pd  # noqa: PLC0415 - takes half a second, and few calls need it

    types = {name: "Int64" for name in counts if name in columns}
    return pd.DataFrame(list(rows), columns=list(columns)).astype(types)


def findings_frame(outcome: Report | Unaudited) -> "pd.DataFrame":
    return _frame(*as_csv.table_of(outcome, "findings"), _FINDING_COUNTS)


def diagnosis_frame(outcome: Report | Unaudited) -> "pd.DataFrame":
    return _frame(*as_csv.table_of(outcome, "diagnosis"), _FINDING_COUNTS)


def modules_frame(outcome: Report | Unaudited) -> "pd.DataFrame":
    rows = ((outcome.model, outcome.commit, *astuple(row)) for row in outcome.modules)
    return _frame(("model", "commit_sha", *ModuleRow.__struct_fields__), rows, _COUNTS)


def tensors_frame(outcome: Report | Unaudited) -> "pd.DataFrame":
    rows = (
        (part.component, *row)
        for part in outcome.every
        if part.tensors
        for row in part.tensors.rows()
    )
    frame = _frame(("component", *TensorRow._fields), rows, ("elements", "parameters"))
    parts = [part for part in outcome.every if _values_read(part)]
    if not parts:
        return frame
    import pandas as pd  # noqa: PLC0415 - as above

    values = pd.concat([values_frame(part).assign(component=part.component) for part in parts])
    values = values.drop(columns=["model", "commit_sha", "dtype"])
    return frame.merge(values, how="left", on=["component", "name", "file"])


def values_frame(outcome: Report | Unaudited) -> "pd.DataFrame":
    values = _values_read(outcome)
    rows = (
        (outcome.model, outcome.commit, *(getattr(tensor, name) for name in VALUES))
        for tensor in (values.tensors if values else ())
    )
    frame = _frame(("model", "commit_sha", *VALUES), rows, _READ_COUNTS)
    return frame.astype(dict.fromkeys(_STATISTICS, "float64"))


def _values_read(outcome: Report | Unaudited) -> ValuesRead | None:
    return outcome.values  # noqa: PD011 - the outcome's attribute, not a frame's
