"""Evaluate formulas in mathematical notation: V·D + N·(12·D² + 13·D) with given V, D and N."""

import ast
import re
from collections.abc import Mapping

_LONGEST = 2000  # characters of a formula
_LARGEST = 10**40  # of an intermediate value: a power of a power is not a count
_MOST_POWER = 8
_DIGITS = 60  # of a number
_TOKEN = re.compile(r"\s*(?:(\d[\d,_]*)|([A-Za-z_][\w.]*(?:\[\d+\])?)|(\*\*|.))", re.DOTALL)
# Printed signs -> typed ones: dots, crosses, full-width brackets, a minus sign.
_SIGNS = str.maketrans("\u00b7\u00d7\u2217\uff08\uff09\u2212", "***()-")
_OPERATORS = {"^": "**", **{sign: sign for sign in ("+", "-", "*", "/", "**", "(", ")")}}


class FormulaError(ValueError):
    """The text is not a formula, or has an unknown letter."""


def evaluate(text: str, letters: Mapping[str, int]) -> int:
    """Return the value of a formula; raise FormulaError if it is invalid."""
    if len(text) > _LONGEST:
        raise FormulaError("the formula is too long")
    plain = text.strip().translate(_SIGNS).replace("²", "^2").replace("³", "^3")
    try:
        tree = ast.parse(" ".join(_tokens(plain, letters)), mode="eval")
        return _value(tree.body)
    except SyntaxError as error:
        is_about_brackets = any(sign in error.msg for sign in ("(", ")", "paren"))
        why = error.msg if is_about_brackets else "a term is missing"
        raise FormulaError(f"the formula cannot be read: {why}") from None
    except (RecursionError, MemoryError):
        raise FormulaError("the formula has too many brackets or terms") from None


def _tokens(text: str, letters: Mapping[str, int]) -> list[str]:
    """Return the formula as an expression of numbers and signs in Python.

    A factor may follow without a multiplication sign, as in 12 D.
    """
    tokens: list[str] = []
    for number, name, sign in (match.groups("") for match in _TOKEN.finditer(text)):
        if name and name not in letters:
            known = ", ".join(sorted(letters))
            raise FormulaError(f"{name!r} is not a letter of this model's formula ({known})")
        if sign and sign not in _OPERATORS:
            raise FormulaError(f"{sign!r} is not expected there")
        if (number or name or sign == "(") and tokens and tokens[-1][-1] in "0123456789)":
            tokens.append("*")
        value = int(re.sub(r"[,_]", "", number)[:_DIGITS]) if number else letters.get(name, 0)
        tokens.append(_OPERATORS[sign] if sign else str(_bounded(value)))
    return tokens


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(int(value)):
            return _bounded(value)
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand)
        case ast.BinOp(left, operator, right):
            return _bounded(_result(operator, _value(left), _value(right)))
        case _:
            raise FormulaError("the formula is not a sum of products")


def _result(operator: ast.operator, left: int, right: int) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if right and left % right == 0:
            return left // right
        case ast.Div():
            raise FormulaError(f"{left} cannot be divided by {right}")
        case ast.Pow() if 0 <= right <= _MOST_POWER:
            return int(left**right)
        case _:
            raise FormulaError(f"the power {right} is too large")


def _bounded(value: int) -> int:
    if abs(value) > _LARGEST:
        raise FormulaError("the formula's value is too large")
    return value
