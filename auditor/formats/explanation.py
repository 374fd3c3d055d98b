"""The text of `audit explain`: the modules that a config implies, with formulas and the total."""

import re
from collections.abc import Iterator, Sequence

from auditor.formats.as_json import as_object
from auditor.formats.escapes import escaped_latex
from auditor.formats.json_values import json_text
from auditor.formats.module_table import Line, lines
from auditor.formats.tables import Share, SimpleTable, right_columns, styled_rows
from auditor.formats.text import columns, cut_name, lines_text, plain_line, styled, wrapped
from auditor.messages import printable
from auditor.report import Expected, Report, Symbol, Unaudited

_ALL_LEVELS = 64  # deeper than any model


def render(
    outcome: Report | Unaudited,
    *,
    depth: int | None = None,
    width: int = 80,
    color: bool = False,
    symbolic: bool = False,
) -> str:
    """Return the module tree down to `depth`; numbered siblings are folded.

    With `symbolic`, only formulas are printed, without values. Return "" if the config implies no
    tensors.
    """
    expected = outcome.expected
    if expected is None:
        return ""
    modules = lines(outcome.modules, _ALL_LEVELS if depth is None else depth)
    table = _table(modules, expected, width, symbolic=symbolic)
    name = outcome.model or outcome.requested
    of = outcome.model_type or (outcome.expected and outcome.expected.library)
    shown = [styled(f"{name}: {outcome.target} ({of})", "bold"), ()]
    shown += (*columns(styled_rows(table), right=right_columns(table), width=width), ())
    for line in _legend(expected.legend, symbolic=symbolic):
        shown += wrapped(line, width, 2)
    if not symbolic:
        shown += ((), *map(styled, _totals(expected)))
    return lines_text(shown, color=color)


def _table(
    modules: Sequence[Line], expected: Expected, width: int, *, symbolic: bool
) -> SimpleTable:
    """Return the table of modules, each named by its prefix's last part and indented by depth."""
    names = ("module", "formula") if symbolic else ("module", "parameters", "share", "formula")
    cells = (
        {
            "module": "  " * max(line.row.depth - 1, 0) + cut_name(_last(line), width // 2),
            "parameters": line.expected or 0,
            "share": Share(_part(line.expected or 0, expected.parameters)),
            "formula": line.formula or "0",
        }
        for line in modules
    )
    return SimpleTable("modules", names, tuple(tuple(map(row.get, names)) for row in cells))


def _part(count: int, total: int) -> float:
    return count / total if total else 0.0


def _last(line: Line) -> str:
    """Return the last part of a prefix; if it is a number, the last two: `layer.{0-11}`."""
    if line.row.depth <= 1:
        return line.name
    parts = re.split(r"\.(?![^{]*\})", line.pattern)
    is_number = re.fullmatch(r"\{?[0-9,-]+\}?", parts[-1])
    return ".".join(parts[-2:]) if is_number else parts[-1]


def _legend(legend: Sequence[Symbol], *, symbolic: bool) -> Iterator[str]:
    for symbol in legend:
        value = "" if symbolic else f" = {symbol.value:,}"
        formula = f" = {symbol.formula}" if symbol.formula else ""
        default = ", the class's default" if symbol.default and not symbolic else ""
        yield f"{symbol.letter}{formula}{value}  {symbol.key}{default}"


def _totals(expected: Expected) -> Iterator[str]:
    yield f"{expected.parameters:,} parameters in {expected.tensors:,} tensors"
    if active := expected.active:
        share = _part(active.parameters, expected.parameters)
        yield f"{active.parameters:,} ({share:.1%}) active for one token = {active.formula}"


# --- JSON ---------------------------------------------------------------------------------------

_MODEL_KEYS = ("requested", "model", "commit", "source", "target", "model_type")
_MODULE_KEYS = ("prefix", "depth", "expected", "formula")


def as_json(outcome: Report | Unaudited, *, depth: int | None = None) -> str:
    """Return a JSON object on one line; keys shared with `audit --format json` mean the same.

    `reason` and `detail` are null if an expectation could be computed.
    """
    document = as_object(outcome)
    total = outcome.expected.parameters if outcome.expected else None
    modules = [
        {key: row[key] for key in _MODULE_KEYS}
        | {"share": (row["expected"] or 0) / total if total else None}
        for row in document["modules"]
        if depth is None or row["depth"] <= depth
    ]
    is_unknown = outcome.expected is None
    explanation = {
        "schema": document["schema"],
        **{key: document[key] for key in _MODEL_KEYS},
        "expected": document["expected"],
        "modules": modules,
        "kv_cache": document["kv_cache"],
        "findings": document["findings"],
        "reason": document["reason"] if is_unknown else None,
        "detail": document["detail"] if is_unknown else None,
    }
    return json_text(explanation) + "\n"


# --- LaTeX --------------------------------------------------------------------------------------

_NAME = re.compile(r"(ceil|floor)\(([^()]*)\)|([A-Za-z]\w*)|\^(\d+)|\*")


def latex(outcome: Report | Unaudited, *, depth: int | None = None) -> str:
    """Return the tree as the rows of an align* environment; `%` lines hold the legend."""
    expected = outcome.expected
    if expected is None:
        return ""
    rows = [
        f"\\texttt{{{escaped_latex(line.pattern if line.row.depth else 'total')}}}"
        f" &= {_math(printable(line.formula or '0'))}"
        for line in lines(outcome.modules, _ALL_LEVELS if depth is None else depth)
    ]
    legend = (f"% {line}" for line in _legend(expected.legend, symbolic=False))
    body = [*(f"{row} \\\\" for row in rows[:-1]), *rows[-1:]]
    return "".join(map(plain_line, (*legend, r"\begin{align*}", *body, r"\end{align*}")))


def _math(formula: str) -> str:
    """Return `N (12 D^{2} + 13 D)` for `N*(12*D^2 + 13*D)`."""

    def part(match: re.Match[str]) -> str:
        rounding, inner, name, power = match.groups()
        if rounding:
            return f"\\l{rounding} {_math(inner)} \\r{rounding}"
        if power:
            return f"^{{{power}}}"
        if name is None:
            return " "
        letter, _, index = name.partition("_")
        if index:
            return f"{letter}_{{\\text{{{escaped_latex(index)}}}}}"
        return "\\times" if name == "x" else name if len(name) == 1 else f"\\text{{{name}}}"

    return _NAME.sub(part, formula)
