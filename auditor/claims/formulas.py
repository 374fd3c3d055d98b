"""Evaluate formulas in mathematical notation: V·D + N·(12·D² + 13·D) with given V, D and N."""

import re
from collections.abc import Mapping

_LONGEST = 2000  # characters of a formula
_DEEPEST = 50  # brackets
_LARGEST = 10**40  # of an intermediate value: a power of a power is not a count
_TOKEN = re.compile(r"\s*(?:(\d[\d,_]*)|([A-Za-z_][\w.]*(?:\[\d+\])?)|(\*\*|.))", re.DOTALL)
# Printed signs -> typed ones: dots, crosses, full-width brackets, a minus sign.
_SIGNS = str.maketrans("\u00b7\u00d7\u2217\uff08\uff09\u2212", "***()-")


class FormulaError(ValueError):
    """The text is not a formula, or has an unknown letter."""


def evaluate(text: str, letters: Mapping[str, int]) -> int:
    """Return the value of a formula; raise FormulaError, naming the token, if it is invalid."""
    if len(text) > _LONGEST:
        raise FormulaError("the formula is too long")
    plain = text.translate(_SIGNS)
    plain = plain.replace("²", "^2").replace("³", "^3")
    tokens = [match.groups("") for match in _TOKEN.finditer(plain)]
    reader = _Reader([token for token in tokens if "".join(token).strip()], letters)
    value = reader.sum(0)
    reader.end()
    return value


class _Reader:
    """A parser that evaluates a sum of products of powers."""

    def __init__(self, tokens: list[tuple[str, ...]], letters: Mapping[str, int]) -> None:
        self._tokens = tokens
        self._at = 0
        self._letters = letters

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise FormulaError(f"{''.join(self._tokens[self._at])!r} is not expected there")

    def _sign(self, *signs: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at][2] in signs:
            self._at += 1
            return self._tokens[self._at - 1][2]
        return None

    def sum(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise FormulaError("the formula has too many brackets")
        value = -self._product(depth) if self._sign("-") else self._product(depth)
        while sign := self._sign("+", "-"):
            more = self._product(depth)
            value += more if sign == "+" else -more
        return _bounded(value)

    def _product(self, depth: int) -> int:
        value = self._power(depth)
        while True:
            sign = self._sign("*", "/")
            if sign is None and not self._follows():
                return value
            factor = self._power(depth)
            if sign == "/":
                if not factor or value % factor:
                    raise FormulaError(f"{value} cannot be divided by {factor}")
                value //= factor
            else:
                value = _bounded(value * factor)

    def _follows(self) -> bool:
        """Return whether a factor follows without a multiplication sign, as in 12 D."""
        if self._at >= len(self._tokens):
            return False
        number, name, sign = self._tokens[self._at]
        return bool(number or name) or sign == "("

    def _power(self, depth: int) -> int:
        value = self._atom(depth)
        if self._sign("^", "**"):
            power = self._atom(depth)
            if not 0 <= power <= 8:  # noqa: PLR2004 - no count has a ninth power
                raise FormulaError(f"the power {power} is too large")
            value = _bounded(value**power)
        return value

    def _atom(self, depth: int) -> int:
        if self._at >= len(self._tokens):
            raise FormulaError("the formula ends too early")
        number, name, sign = self._tokens[self._at]
        self._at += 1
        if number:
            return _bounded(int(re.sub(r"[,_]", "", number)[:60]))
        if name:
            if name not in self._letters:
                letters = ", ".join(sorted(self._letters))
                raise FormulaError(f"{name!r} is not a letter of this model's formula ({letters})")
            return self._letters[name]
        if sign == "(":
            value = self.sum(depth + 1)
            if not self._sign(")"):
                raise FormulaError("a bracket is not closed")
            return value
        raise FormulaError(f"{sign!r} is not expected there")


def _bounded(value: int) -> int:
    if abs(value) > _LARGEST:
        raise FormulaError("the formula's value is too large")
    return value
