"""Values of keys that give the total_size of an index, if there is nothing but the index.

The size of the implied tensors is a polynomial in a key, of degree 2 at most. Three configs
determine the polynomial, which is solved for the total. The audit then checks the value to the
byte.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import isqrt, prod

from auditor.diagnosis.case import Case
from auditor.diagnosis.changes import with_values
from auditor.diagnosis.solving.candidates import HEADS, KeyChange, makes_odd_groups
from auditor.diagnosis.solving.keys import Key, config_with
from auditor.errors import CheckpointError

_WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}  # bytes per parameter
_LESS_ROUND = 4  # a value this many times less round than the declared one is unlikely
_LARGEST = 10**7  # of a key's value


def changes_by_total(case: Case) -> list[KeyChange]:
    """Return single key changes that give the total, the least likely to fit by chance first.

    A key whose step adds many parameters fits by chance least often; between two such keys, the
    rounder value is likelier. Numbers of heads shape nothing by themselves and come last, as do
    unequal groups of heads and values that are far less round than the declared one.
    """
    changes = sorted(_changes(case), key=lambda one: _likelihood(case, *one), reverse=True)
    return [change for _, change in changes]


def _likelihood(case: Case, grows: int, change: KeyChange) -> tuple[bool, bool, int, int]:
    key, value = change.key, change.value
    odd = makes_odd_groups(case.config, key.path, value)
    heads = key.path.rpartition(".")[2] in HEADS
    roundness = _roundness(value)
    return not (heads or odd), roundness >= _roundness(key.value) // _LESS_ROUND, grows, roundness


def _roundness(value: int) -> int:
    """Return the highest power of 2 that divides the value."""
    return value & -value


def _changes(case: Case) -> Iterator[tuple[int, KeyChange]]:
    """Yield each change that gives the total, with the parameters that a step of the key adds."""
    total, expected = _total(case), case.report.expected
    if total is None or expected is None or expected.by != "closed-form":
        return
    for symbol in expected.legend:
        if not symbol.letter or symbol.value < 1:
            continue
        sizes = [_implied(case, symbol.key, factor * symbol.value) for factor in (1, 2, 3)]
        if 0 in sizes:
            continue
        key = Key(symbol.key, symbol.value, default=symbol.default)
        for width in _widths(case):
            for factor in _roots(sizes, Fraction(total, width)):
                value = factor * symbol.value
                if value.denominator == 1 and 0 < value <= _LARGEST and value != symbol.value:
                    yield (sizes[2] - sizes[0]) // symbol.value, KeyChange(key, int(value))


def _widths(case: Case) -> Iterable[int]:
    """Return the bytes per parameter: of the declared dtype, or of every dtype."""
    dtype = case.config.get("dtype") or case.config.get("torch_dtype")
    if isinstance(dtype, str) and dtype in _WIDTHS:
        return (_WIDTHS[dtype],)
    return sorted({*_WIDTHS.values()})


def _total(case: Case) -> int | None:
    """Return the index's total_size; None if there are headers or differing names."""
    index = case.snapshot.index
    if index is None or case.snapshot.headers or case.missing or case.unexpected:
        return None
    try:
        total = index.as_index.total_size
    except CheckpointError:
        return None
    return total if type(total) is int else None


def _implied(case: Case, path: str, value: int) -> int:
    """Return the number of parameters that the value implies; 0 if it implies nothing."""
    shapes = case.implied(with_values(case.snapshot, config_with(case.config, path, value)))
    return sum(map(prod, (shapes or {}).values()))


def _roots(sizes: list[int], wanted: Fraction) -> Iterator[Fraction]:
    """Yield the rational points where the polynomial through (1, 2, 3) -> sizes is `wanted`."""
    first, second, third = sizes
    a = Fraction(third - 2 * second + first, 2)
    b = Fraction(second - first) - 3 * a
    c = first - a - b - wanted
    if a == 0:
        if b:
            yield -c / b
        return
    discriminant = b * b - 4 * a * c
    if discriminant < 0:
        return
    root = Fraction(isqrt(discriminant.numerator), isqrt(discriminant.denominator))
    if root * root == discriminant:
        yield from {(-b + root) / (2 * a), (-b - root) / (2 * a)}
