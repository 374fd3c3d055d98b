"""The equations between formulas of sizes and stored lengths, solved for config keys.

A formula (Dim) is solved for one of its keys: the `H` for which `K*D/H` is 64. Lengths that share
keys are solved together, one axis at a time. An axis of `V` rows, or a list of `N` layers, has one
unknown key, whose value is the length. An axis of `H*d` rows has two: a model with twice the heads,
half as wide, stores the same tensors. The axis determines `H` only after another axis has
determined `d`. A length that several values of the key give, such as `floor(I/P)`, determines
nothing; if the declared image is an integer number of patches, `I/P`, the stored image is too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from math import ceil, floor
from types import MappingProxyType
from typing import Any

from auditor.analytic.dims import Count, Dim, Rounded
from auditor.analytic.expectation import Symbol
from auditor.diagnosis.solving import limits

Values = Mapping[Symbol, int]
_SizeAt = Callable[[int], Fraction | int | None]  # the size of a Dim at a value of one symbol


def size_with(size: Dim, values: Values) -> Fraction | int | None:
    """Return the Dim's size with these values of its symbols; None for a division by zero."""
    total: Fraction | int = 0
    for monomial, coefficient in size.terms:
        product: Fraction | int = coefficient
        for atom, power in monomial:
            value = _atom(atom, values)
            if value is None or (power < 0 and not value):
                return None
            product = product * value**power if power > 0 else Fraction(product) / value**-power
        total += product
    return total


def _atom(atom: Symbol | Count | Rounded, values: Values) -> Fraction | int | None:
    match atom:
        case Symbol():
            return values.get(atom, atom.value)
        case Count(value):
            return value
        case Rounded(how, over, by):
            above, below = size_with(over, values), size_with(by, values)
            if above is None or not below:
                return None
            quotient = Fraction(above) / below
            return floor(quotient) if how == "floor" else ceil(quotient)


def solutions(
    size: Dim, symbol: Symbol, wanted: int, others: Values = MappingProxyType({})
) -> Iterator[int]:
    """Yield the symbol's values for which the Dim is `wanted`; `others` sets other symbols."""

    def at(value: int) -> Fraction | int | None:
        return size_with(size, {**others, symbol: value})

    rises, linear = _course(size, symbol)
    if linear:
        start, step = at(0), at(1)
        if start is None or step is None or start == step:
            return
        straight = Fraction(wanted - start) / (step - start)
        if straight.denominator == 1 and 0 <= straight < limits.LARGEST:
            yield straight.numerator
        return
    if rises:
        yield from _bisected(at, wanted)
        return
    for value in range(1, limits.ENUMERATED):
        if at(value) == wanted:
            yield value
    # A quotient such as K*D/H may need a divisor beyond the enumerated values.
    dividend = at(1)
    if dividend is not None and wanted and dividend >= limits.ENUMERATED * wanted:
        exact = Fraction(dividend) / wanted
        if exact.denominator == 1 and at(exact.numerator) == wanted:
            yield exact.numerator


def _course(size: Dim, symbol: Symbol) -> tuple[bool, bool]:
    """Return whether the Dim grows with the symbol, and whether it is linear in the symbol."""
    powers: set[int] = set()
    rounded = falls = False
    for monomial, coefficient in size.terms:
        symbol_power = 0
        for atom, power in monomial:
            if atom == symbol:
                symbol_power = power
            elif isinstance(atom, Rounded) and symbol in atom.over.symbols | atom.by.symbols:
                rounded = True
        powers.add(symbol_power)
        falls = falls or (symbol_power != 0 and coefficient < 0)
    rises = not falls and min(powers, default=0) >= 0 and not _falls_within(size, symbol)
    return rises, not rounded and powers <= {0, 1}


def _falls_within(size: Dim, symbol: Symbol) -> bool:
    """Whether a rounded quotient in the formula may fall while the symbol grows.

    This is so if the symbol is in its divisor, or is both in the quotient and a factor of it.
    """
    for monomial, _ in size.terms:
        within = [atom for atom, _ in monomial if isinstance(atom, Rounded)]
        if any(symbol in atom.by.symbols for atom in within):
            return True
        if any(atom == symbol for atom, _ in monomial) and any(
            symbol in atom.over.symbols for atom in within
        ):
            return True
    return False


def _bisected(at: _SizeAt, wanted: int) -> Iterator[int]:
    """Yield one solution of an increasing formula: the solution with the most factors of 2."""
    low = _first_at_least(at, wanted)
    if at(low) != wanted:
        return
    high = _first_at_least(at, wanted + 1) - 1
    step, first = 1, low
    low = max(low, 1)
    while -(-low // (2 * step)) * 2 * step <= high:
        step *= 2
    round_one = -(-low // step) * step
    yield round_one if at(round_one) == wanted else first


def _first_at_least(at: _SizeAt, wanted: int) -> int:
    low, high = 0, limits.LARGEST
    while low < high:
        middle = (low + high) // 2
        if (at(middle) or 0) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


# --- several lengths together --------------------------------------------------------------

_Monomial = tuple[Any, ...]  # a product of keys in a Dim
_Equation = tuple[dict[_Monomial, Fraction], Fraction]  # coefficient by product, value of the sum


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
    short = (one for one in equations if len(one[0]) < limits.PRODUCTS)
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
