"""The grammar of generated forms: expressions of config keys and loop indices, never `eval`.

An expression is JSON: a number, true, false or null is a constant, and a list is an operator with
its arguments. `["k", "hidden_size"]` is the value of a key, `["i", 0]` the index of the outermost
loop, `["q", "silu"]` a constant of any type. The other operators are those of `_OPERATORS`, `if`,
`and` and `or`, whose arguments are evaluated only if needed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from auditor.bounded.json_text import is_identical
from auditor.errors import CheckpointError

_DEEPEST = 12
_LARGEST = 2**48  # of any number; the largest published tensor has 2**33 elements
_LONGEST = 4096  # characters of an expression as JSON

Values = Mapping[str, Any]
Evaluator = Callable[[Values, tuple[int, ...]], Any]


class Outside(Exception):  # noqa: N818 - a config outside the guards of a form is not an error
    """Raised for a config with a key or a value that a generated form does not cover."""

    def __init__(self, key: str, only: str = "") -> None:
        super().__init__(key)
        self.key = key
        self.only = only  # what the form covers instead


def _at(items: Any, place: Any) -> Any:
    if type(place) is not int or not -1 <= place < len(items):
        raise IndexError
    return items[place]


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > _LARGEST:
        raise TypeError
    return value


def _power(exponent: Any) -> int:
    if not 0 <= _integer(exponent) <= 32:  # noqa: PLR2004 - more is no size
        raise ValueError
    return 1 << int(exponent)


_OPERATORS: Mapping[str, tuple[int, Callable[..., Any]]] = MappingProxyType(
    {
        "+": (2, lambda a, b: _integer(_integer(a) + _integer(b))),
        "-": (2, lambda a, b: _integer(_integer(a) - _integer(b))),
        "*": (2, lambda a, b: _integer(_integer(a) * _integer(b))),
        "//": (2, lambda a, b: _integer(a) // _integer(b)),
        "%": (2, lambda a, b: _integer(a) % _integer(b)),
        "2^": (1, _power),
        "==": (2, is_identical),
        "<": (2, lambda a, b: _integer(a) < _integer(b)),
        "not": (1, lambda a: not a),
        "bool": (1, bool),
        "len": (1, len),
        "at": (2, _at),
        "in": (2, lambda a, items: a in items),
    }
)
_ERRORS = (ArithmeticError, IndexError, KeyError, TypeError, ValueError)


def keys_of(expression: Any) -> Iterator[str]:
    """Yield the config keys that an expression reads."""
    if isinstance(expression, list) and expression[:1] != ["q"]:
        if expression[0] == "k":
            yield expression[1]
        for argument in expression[1:]:
            yield from keys_of(argument)


def evaluator(expression: Any) -> Evaluator:
    """Return a function that evaluates the expression; raise CheckpointError for bad syntax.

    The function raises Outside with the expression's first key if the expression has no value.
    """
    return _evaluator(json.dumps(expression))


@lru_cache(maxsize=4096)
def _evaluator(text: str) -> Evaluator:
    if len(text) > _LONGEST:
        raise CheckpointError(f"an expression has {len(text)} characters, expected {_LONGEST}")
    expression = json.loads(text)
    inner = _parsed(expression, _DEEPEST)
    key = next(keys_of(expression), "config")

    def evaluate(values: Values, index: tuple[int, ...]) -> Any:
        try:
            return inner(values, index)
        except _ERRORS:
            raise Outside(key) from None

    return evaluate


def _parsed(expression: Any, depth: int) -> Evaluator:
    match expression:
        case None | bool() | int():
            return lambda _values, _index: expression
        case ["q", constant]:
            return lambda _values, _index: constant
        case ["k", str(key)]:
            return lambda values, _index: values[key]
        case ["i", int(level)] if 0 <= level < _DEEPEST:
            return lambda _values, index: index[level]
        case [str(name), *arguments] if depth:
            parts = [_parsed(argument, depth - 1) for argument in arguments]
            return _applied(name, parts)
    raise CheckpointError(f"{str(expression)[:80]!r} is not an expression")


def _applied(name: str, parts: list[Evaluator]) -> Evaluator:
    match name, parts:
        case "if", [test, then, otherwise]:
            return lambda v, i: then(v, i) if test(v, i) else otherwise(v, i)
        case "and", [first, second]:
            return lambda v, i: bool(first(v, i) and second(v, i))
        case "or", [first, second]:
            return lambda v, i: bool(first(v, i) or second(v, i))
        case _, [one] if name in _OPERATORS and _OPERATORS[name][0] == 1:
            unary = _OPERATORS[name][1]
            return lambda v, i: unary(one(v, i))
        case _, [one, other] if name in _OPERATORS and _OPERATORS[name][0] == 2:  # noqa: PLR2004
            binary = _OPERATORS[name][1]
            return lambda v, i: binary(one(v, i), other(v, i))
    raise CheckpointError(f"{name[:80]!r} with {len(parts)} arguments is not an operator")
