"""Values of keys where only an index is there: those with which its total_size comes out.

What a config implies grows with a key as a polynomial of the second degree at most: three configs
give it, and it is solved for the total. The audit then judges, to the byte.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import isqrt, prod

from auditor.diagnosis.case import Case
from auditor.diagnosis.changes import with_values
from auditor.diagnosis.solving.candidates import HEADS, KeyChange, makes_odd_groups
from auditor.diagnosis.solving.keys import Key, config_with
from auditor.errors import CheckpointError

_WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}  # bytes of a parameter
_LESS_ROUND = 4  # times
_LARGEST = 10**7  # of a key's value


def changes_by_total(case: Case) -> list[KeyChange]:
    """One key each, with the value that makes the total come out; the least likely to do so first.

    A key of which one more is many parameters fits by chance least often; of two such keys a
    rounder value is likelier. Numbers of heads shape nothing by themselves, and come last; so do
    groups of heads that are not alike, and values that are far less round than the declared one.
    """
    found = sorted(_found(case), key=lambda one: _likelihood(case, *one), reverse=True)
    return [change for _, change in found]


def _likelihood(case: Case, grows: int, change: KeyChange) -> tuple[bool, bool, int, int]:
    key, value = change.key, change.value
    odd = makes_odd_groups(case.config, key.path, value)
    heads = key.path.rpartition(".")[2] in HEADS
    roundness = _roundness(value)
    return not (heads or odd), roundness >= _roundness(key.value) // _LESS_ROUND, grows, roundness


def _roundness(value: int) -> int:
    """The highest power of 2 in it."""
    return value & -value


def _found(case: Case) -> Iterator[tuple[int, KeyChange]]:
    """How much each more of the key comes to, and the change."""
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
    """Bytes of a parameter: as the config says, or any."""
    said = case.config.get("dtype") or case.config.get("torch_dtype")
    if isinstance(said, str) and said in _WIDTHS:
        return (_WIDTHS[said],)
    return sorted({*_WIDTHS.values()})


def _total(case: Case) -> int | None:
    """What an index says, where no header is there to say it."""
    index = case.snapshot.index
    if index is None or case.snapshot.headers or case.missing or case.unexpected:
        return None
    try:
        total = index.as_index.total_size
    except CheckpointError:
        return None
    return total if type(total) is int else None


def _implied(case: Case, path: str, value: int) -> int:
    """Parameters that the config implies with that value of the key; 0 where nothing follows."""
    shapes = case.implied(with_values(case.snapshot, config_with(case.config, path, value)))
    return sum(map(prod, (shapes or {}).values()))


def _roots(sizes: list[int], wanted: Fraction) -> Iterator[Fraction]:
    """Where the polynomial through (1, 2, 3) -> sizes has the wanted value, if that is rational."""
    first, second, third = sizes
    a = Fraction(third - 2 * second + first, 2)
    b = Fraction(second - first) - 3 * a
    c = first - a - b - wanted
    if a == 0:
        if b:
            yield -c / b
        return
    under = b * b - 4 * a * c
    if under < 0:
        return
    root = Fraction(isqrt(under.numerator), isqrt(under.denominator))
    if root * root == under:
        yield from {(-b + root) / (2 * a), (-b - root) / (2 * a)}
