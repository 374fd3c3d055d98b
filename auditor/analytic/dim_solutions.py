"""The solution of a size formula (Dim) for one of its keys: the `H` for which `K*D/H` is 64."""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import ceil, floor
from types import MappingProxyType

from auditor.analytic.dims import Count, Dim, Rounded
from auditor.analytic.expectation import Symbol

MOST = 2**31  # upper bound of a key's value
_ENUMERATED = 1024  # values tried one by one if a formula is neither linear nor increasing

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
        if straight.denominator == 1 and 0 <= straight < MOST:
            yield straight.numerator
        return
    if rises:
        yield from _bisected(at, wanted)
        return
    for value in range(1, _ENUMERATED):
        if at(value) == wanted:
            yield value
    # A quotient such as K*D/H may need a divisor beyond the enumerated values.
    dividend = at(1)
    if dividend is not None and wanted and dividend >= _ENUMERATED * wanted:
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
    low, high = 0, MOST
    while low < high:
        middle = (low + high) // 2
        if (at(middle) or 0) < wanted:
            low = middle + 1
        else:
            high = middle
    return low
