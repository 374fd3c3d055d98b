"""The implications of a config, for people: each module with its formula, the legend, the total."""

import re
from collections.abc import Iterator, Sequence

from auditor.formats.module_table import Line, lines
from auditor.formats.text import (
    Styled,
    columns,
    cut_name,
    header_row,
    lines_text,
    plain_line,
    styled,
    wrapped,
)
from auditor.messages import printable
from auditor.report import Expected, Report, Symbol, Unaudited

_ALL_THE_WAY = 64  # deeper than any model


def render(
    outcome: Report | Unaudited,
    *,
    depth: int | None = None,
    width: int = 80,
    color: bool = False,
    symbolic: bool = False,
) -> str:
    """The module tree down to `depth`, numbered siblings folded; nothing without an expectation.

    `symbolic` leaves all values out.
    """
    expected = outcome.expected
    if expected is None:
        return ""
    found = lines(outcome.modules, _ALL_THE_WAY if depth is None else depth)
    title = f"{outcome.model or outcome.requested}: {outcome.target}"
    table = list(_table(found, expected, width, symbolic=symbolic))
    figures = range(1, len(table[0]) - 1)
    shown = [styled(f"{title} ({outcome.model_type})", "bold"), ()]
    shown += (*columns(table, right=figures, width=width), ())
    for line in _legend(expected.legend, symbolic=symbolic):
        shown += wrapped(line, width, 2)
    if not symbolic:
        shown += ((), *map(styled, _totals(expected)))
    return lines_text(shown, color=color)


def _table(
    found: Sequence[Line], expected: Expected, width: int, *, symbolic: bool
) -> Iterator[Sequence[Styled | str]]:
    """The heading, and a row for each line."""
    yield header_row("module", *(() if symbolic else ("parameters", "share")), "formula")
    for line in found:
        count = line.modules * (line.row.expected or 0)
        share = count / expected.parameters if expected.parameters else 0.0
        name = "  " * max(line.row.depth - 1, 0) + cut_name(_name(line), width // 2)
        numbers = () if symbolic else (f"{count:,}", f"{share:.1%}")
        yield (name, *numbers, _times(line))


def _name(line: Line) -> str:
    """The last part of the prefix, which the indent puts in its place."""
    if not line.row.depth:
        return "(whole model)"
    return line.pattern if line.row.depth == 1 else _last(line.pattern)


def _last(pattern: str) -> str:
    """`layer.{0-11}.output` -> `output`; a number keeps its module: `layer.{0-11}`."""
    parts = re.split(r"\.(?![^{]*\})", pattern)
    numbered = re.fullmatch(r"\{?[0-9,-]+\}?", parts[-1])
    return ".".join(parts[-2:]) if numbered else parts[-1]


def _times(line: Line) -> str:
    formula = line.row.formula or "0"
    return formula if line.modules == 1 else f"{line.modules} x ({formula})"


def _legend(legend: Sequence[Symbol], *, symbolic: bool) -> Iterator[str]:
    for symbol in legend:
        value = "" if symbolic else f" = {symbol.value:,}"
        formula = f" = {symbol.formula}" if symbol.formula else ""
        default = ", the class's default" if symbol.default and not symbolic else ""
        yield f"{symbol.letter}{formula}{value}  {symbol.key}{default}"


def _totals(expected: Expected) -> Iterator[str]:
    yield f"{expected.parameters:,} parameters in {expected.tensors:,} tensors"
    if expected.active is not None:
        share = expected.active.parameters / expected.parameters if expected.parameters else 0.0
        active = f"{expected.active.parameters:,} ({share:.1%}) active for one token"
        yield f"{active} = {expected.active.formula}"


# --- LaTeX ------------------------------------------------------------------------------------

_NAME = re.compile(r"(ceil|floor)\(([^()]*)\)|([A-Za-z]\w*)|\^(\d+)|\*")


def latex(outcome: Report | Unaudited, *, depth: int | None = None) -> str:
    """Write the tree as the rows of an align* environment; `%` lines hold the legend."""
    expected = outcome.expected
    if expected is None:
        return ""
    rows = [
        f"\\texttt{{{escaped_latex(line.pattern if line.row.depth else 'total')}}}"
        f" &= {_math(printable(_times(line)))}"
        for line in lines(outcome.modules, _ALL_THE_WAY if depth is None else depth)
    ]
    legend = (f"% {line}" for line in _legend(expected.legend, symbolic=False))
    body = [*(f"{row} \\\\" for row in rows[:-1]), *rows[-1:]]
    return "".join(map(plain_line, (*legend, r"\begin{align*}", *body, r"\end{align*}")))


def _math(formula: str) -> str:
    """`N*(12*D^2 + 13*D)` -> `N (12 D^{2} + 13 D)`."""

    def part(match: re.Match[str]) -> str:
        rounding, inner, name, power = match.groups()
        if rounding:
            return f"\\l{rounding} {_math(inner)} \\r{rounding}"
        if power:
            return f"^{{{power}}}"
        if name is None:
            return " "
        letter, _, rest = name.partition("_")
        if rest:
            return f"{letter}_{{\\text{{{escaped_latex(rest)}}}}}"
        return "\\times" if name == "x" else name if len(name) == 1 else f"\\text{{{name}}}"

    return _NAME.sub(part, formula)


def escaped_latex(text: str) -> str:
    """Escape a text so that TeX prints it as it is."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "{}_%&#$" else c) for c in printable(text))
