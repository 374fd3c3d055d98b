"""The values of config keys that lengths determine together, read off one axis at a time.

An axis of `V` rows, or a list of `N` layers, has one unknown key, whose value is the length. An
axis of `H*d` rows has two: a model with twice the heads, half as wide, stores the same tensors. The
axis determines `H` only after another axis has determined `d`. A length that several values of the
key give, such as `floor(I/P)`, determines nothing; if the declared image is an integer number of
patches, `I/P`, the stored image is too.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any

from auditor.analytic.dim_solutions import size_with, solutions
from auditor.analytic.dims import Dim
from auditor.analytic.expectation import Symbol

_Monomial = tuple[Any, ...]  # a product of keys in a Dim
_Equation = tuple[dict[_Monomial, Fraction], Fraction]  # coefficient by product, value of the sum
_MOST = 8  # the most unknown products of one length


def determined_sizes(
    equations: Iterable[tuple[Dim, int]], given: Mapping[str, int]
) -> Mapping[Symbol, int]:
    """Return the value of each key that the lengths of axes determine: (formula, length).

    The values in `given`, by key, are assumed and not returned. A key for which two lengths give
    different values is not returned.
    """
    lengths = set(equations)
    symbols = frozenset().union(*(size.symbols for size, _ in lengths))
    granted = {symbol: given[symbol.key] for symbol in symbols if symbol.key in given}
    known, disputed = dict(granted), set[Symbol]()
    while True:
        values_by_symbol: dict[Symbol, set[int]] = {}
        for size, length in lengths:
            unknown = [symbol for symbol in size.symbols if symbol not in known]
            if len(unknown) == 1:
                value = _only_solution(size, unknown[0], length, known)
                if value is not None:
                    values_by_symbol.setdefault(unknown[0], set()).add(value)
        if not values_by_symbol:
            more = set(_monomials(lengths, known)) - lengths
            if not more:
                break
            lengths |= more
            continue
        disputed |= {symbol for symbol, values in values_by_symbol.items() if len(values) > 1}
        known |= {symbol: min(values) for symbol, values in values_by_symbol.items()}
    return {
        symbol: value
        for symbol, value in known.items()
        if symbol not in disputed and symbol not in granted
    }


def _monomials(
    lengths: Iterable[tuple[Dim, int]], known: Mapping[Symbol, int]
) -> Iterator[tuple[Dim, int]]:
    """Yield the products of unknown keys whose value follows from several lengths together.

    `H*n + 64*H`, `H*n + H*v` and `H*v` give each of their products, and so the key `H`.
    """
    solved: list[tuple[_Monomial, _Equation]] = []
    equations = (_equation(size, length, known) for size, length in lengths)
    short = (one for one in equations if len(one[0]) < _MOST)
    for given in sorted(short, key=lambda one: len(one[0])):
        row = given
        for pivot, equation in solved:
            row = _without(pivot, row, equation)
        if row[0]:
            pivot = next(iter(row[0]))
            solved = [(first, _without(pivot, equation, row)) for first, equation in solved]
            solved.append((pivot, row))
    for pivot, (coefficients, total) in solved:
        value = total / coefficients[pivot]
        if len(coefficients) == 1 and value.denominator == 1:
            yield Dim(((pivot, 1),), value.numerator), value.numerator


def _equation(size: Dim, length: int, known: Mapping[Symbol, int]) -> _Equation:
    """Return the coefficient of each product of unknown keys, and the value of their sum."""
    row: dict[_Monomial, Fraction] = {}
    rest = Fraction(length)
    for monomial, coefficient in size.terms:
        value, unknown = Fraction(coefficient), list[Any]()
        for atom, power in monomial:
            alone = Dim(((((atom, 1),), 1),), 0)
            number = size_with(alone, known)
            if alone.symbols <= known.keys() and number:
                value *= Fraction(number) ** power
            else:
                unknown.append((atom, power))
        if unknown:
            row[tuple(unknown)] = row.get(tuple(unknown), Fraction(0)) + value
        else:
            rest -= value
    return {monomial: value for monomial, value in row.items() if value}, rest


def _without(pivot: _Monomial, equation: _Equation, other: _Equation) -> _Equation:
    """Return the equation without the product `pivot`, eliminated by the `other` equation."""
    (row, length), (from_row, from_length) = equation, other
    if pivot not in row:
        return equation
    times = row[pivot] / from_row[pivot]
    every = row.keys() | from_row.keys()
    zero = Fraction(0)
    left = {one: row.get(one, zero) - times * from_row.get(one, zero) for one in every}
    return {one: value for one, value in left.items() if value}, length - times * from_length


def _only_solution(
    size: Dim, symbol: Symbol, length: int, others: Mapping[Symbol, int]
) -> int | None:
    """Return the value of the symbol that gives the length; None for no value or several."""
    values = list(islice(solutions(size, symbol, length, others), 2))
    if len(values) != 1:
        return None
    near = (size_with(size, {**others, symbol: values[0] + step}) for step in (-1, 1))
    return None if length in near else values[0]
