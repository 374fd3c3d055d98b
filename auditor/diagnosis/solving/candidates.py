"""Candidate values of config keys that could remove differences, the likeliest first."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import log
from typing import Any, NamedTuple

from auditor.analytic.config_keys import (
    Key,
    indexed,
    key_at,
    stated_keys,
    value_at,
    with_item,
)
from auditor.analytic.dims import dim
from auditor.analytic.expectation import Symbol
from auditor.diagnosis.solving import limits
from auditor.diagnosis.solving.layer_lists import layer_lists
from auditor.diagnosis.solving.size_equations import solutions
from auditor.diagnosis.solving.size_keys import (
    GROUPS,
    USUAL_HEADS,
    is_heads,
    width_of_heads,
)
from auditor.diagnosis.solving.trials import TreeComparison

_STEPS = (1, -1, 2, -2, 3, -3)
_SIZE = re.compile(r"(heads|groups|experts|layers|dim|size|rank|width|channels)$")


class KeyChange(NamedTuple):
    """A config key and the new value that is tried for it."""

    key: Key
    value: Any


def solved(values: Mapping[str, Any], comparison: TreeComparison) -> Iterator[KeyChange]:
    """Yield key changes that make a differing size fit, sizes of the most tensors first."""
    by_votes = sorted(comparison.equations.items(), key=lambda item: -item[1])
    for equation, _ in by_votes:
        for symbol in sorted(equation.size.symbols):
            key_values = solutions(equation.size, symbol, equation.wanted)
            for value in filter(None, islice(key_values, limits.SOLUTIONS)):  # 0 would fit anything
                yield from of_key(values, symbol, value)


def plain_values(config: Mapping[str, Any], remains: TreeComparison) -> dict[str, tuple[Any, int]]:
    """Return the keys that plain lengths give: path -> (value, number of tensors that give it).

    A plain length is an expected length that is a single key. If lengths give several values of a
    key, the value that most tensors give is returned. A number of modules without a formula is that
    depth whose lists by layer have as many items.
    """
    votes: dict[tuple[str, int | None], Counter[int]] = {}
    depths = {one.layers: one.depth for one in layer_lists(config)}
    for (size, wanted), number in remains.equations.items():
        is_count = not size.symbols and (size.value, wanted) not in remains.lengths
        places: list[tuple[str, int | None]] = []
        if is_count and size.value in depths:
            places.append((depths[size.value], None))
        for symbol in size.symbols:
            if size == dim(symbol):
                path, index = indexed(symbol.key)
                places.append((key_at(config, path, symbol.value).path, index))
        for place in places if wanted else ():
            votes.setdefault(place, Counter())[wanted] += number
    found: dict[str, tuple[Any, int]] = {}
    known = stated_keys({path for path, _ in votes}, config)
    for (path, index), values in votes.items():
        [(value, number)] = values.most_common(1)
        items, before = found.get(path, (known[path].value, 0))
        if index is None:
            found[path] = value, number
        elif isinstance(items, list | tuple) and index < len(items):
            found[path] = with_item(items, index, value), before + number
    return {path: one for path, one in found.items() if one[0] != value_at(config, path)}


def of_key(values: Mapping[str, Any], symbol: Symbol, value: int) -> Iterator[KeyChange]:
    """Yield the change of the symbol's key to the value; `depths[1]` is item 1 of a list."""
    path, index = indexed(symbol.key)
    if index is None:
        if value != symbol.value:
            yield KeyChange(key_at(values, path, symbol.value), value)
        return
    key = key_at(values, path, None)
    items = value_at(values, key.path)
    if isinstance(items, list) and index < len(items) and items[index] != value:
        yield KeyChange(key._replace(value=items), with_item(items, index, value))


def flags(keys: Iterable[Key]) -> Iterator[KeyChange]:
    """Yield every boolean key with the opposite value."""
    for key in keys:
        if isinstance(key.value, bool):
            yield KeyChange(key, not key.value)


def in_proportion(keys: Iterable[Key], comparison: TreeComparison) -> Iterator[KeyChange]:
    """Yield each key's value times stored / expected length, the inverse, twice and half of it.

    Keys named like sizes come first. The inverse is needed because a head's width shrinks as the
    number of heads grows.
    """
    lengths = {pair for pair in comparison.lengths if all(pair)}
    ratios = [*sorted(lengths | {pair[::-1] for pair in lengths}), (1, 2), (2, 1)]
    for key in sorted(keys, key=lambda key: not _SIZE.search(key.path)):
        for expected, stored in ratios:
            if type(key.value) is float:
                yield KeyChange(key, key.value * stored / expected)
            elif type(key.value) is int and not key.value * stored % expected:
                yield KeyChange(key, key.value * stored // expected)


def other_numbers(keys: Iterable[Key], comparison: TreeComparison) -> Iterator[KeyChange]:
    """Yield for each key the closest numbers in differing names, and values up to 3 away."""
    for key in keys:
        if type(key.value) is int:
            values = sorted(comparison.numbers, key=lambda one: abs(one - key.value))[:8]
            values += [key.value + step for step in _STEPS]
            yield from (KeyChange(key, one) for one in values if one >= 0)


def likely(key: Key, lengths: tuple[int, ...]) -> Iterator[KeyChange]:
    """Yield likely values for an integer that is in no formula.

    First come divisors of the most frequent stored length, then stored lengths, then the key's
    value plus or minus 1 and 2.
    """
    width = lengths[0] if lengths else 0
    divisors = [value for value in range(1, min(width, 256) + 1) if not width % value]
    near = sorted(divisors, key=lambda value: abs(value - key.value))[:16]
    steps = (key.value + step for step in _STEPS[:4])
    yield from (KeyChange(key, value) for value in (*near, *lengths[:32], *steps))


def plausibility(values: Mapping[str, Any], changes: Iterable[KeyChange]) -> tuple[Any, ...]:
    """Return a sort key that prefers stated keys, usual head widths, and small changes."""
    ranks = [_strangeness(values, change) for change in changes]
    return tuple(map(max, zip(*ranks, strict=True)))


def _strangeness(values: Mapping[str, Any], change: KeyChange) -> tuple[float, ...]:
    key, value = change.key, change.value
    is_integer, heads = type(value) is int, is_heads(key.path)
    share = width_of_heads(values, key.path, value) if is_integer else 0
    place = USUAL_HEADS.index(share) if share in USUAL_HEADS else len(USUAL_HEADS)
    return (
        is_integer and value == 0,
        type(value) is float,
        heads and is_integer and not 0 < share <= limits.WIDEST_HEAD,
        key.default,
        bool(share) and place > 1,
        heads and key.name not in GROUPS,
        place if share else 0,
        key.path.count("."),
        _distance(key.value, value),
    )


def _distance(declared: Any, value: Any) -> float:
    if type(declared) is int and type(value) is int and declared > 0 and value > 0:
        return abs(log(value) - log(declared))  # log works for integers of any length
    if isinstance(declared, list) and isinstance(value, list):
        return float(sum(one != other for one, other in zip(declared, value, strict=False)))
    return 0.0
