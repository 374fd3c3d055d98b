"""Works a printed formula out by its legend, knowing nothing of how it came to be."""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import ceil, floor

from auditor.analytic import Symbol

_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*(?:\[\d+\])?|[-+*/^() ]")


def evaluate(formula: str, legend: Iterable[Symbol]) -> Fraction:
    """`12*D^2 + K*ceil(D/16)` with the legend's values, exactly."""
    values = {symbol.letter: symbol.value for symbol in legend}

    def python(token: re.Match[str]) -> str:
        text = token.group()
        if text in {"ceil", "floor", *"-+*/() "}:
            return text
        return "**" if text == "^" else f"Fraction({text if text.isdigit() else values[text]})"

    assert not _TOKEN.sub("", formula)
    names = {"Fraction": Fraction, "ceil": ceil, "floor": floor}
    return Fraction(eval(_TOKEN.sub(python, formula), names))  # noqa: S307 - arithmetic alone
