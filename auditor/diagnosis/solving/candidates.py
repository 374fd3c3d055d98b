"""Candidate values of config keys that could remove differences, the likeliest first."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import log
from typing import Any, NamedTuple

from auditor.analytic.config_keys import Key, indexed, key_at, value_at
from auditor.analytic.dim_solutions import solutions
from auditor.analytic.expectation import Symbol
from auditor.diagnosis.solving.trials import TreeComparison

_MOST_SOLUTIONS = 24  # solutions of one equation for one key; a number of heads may be any divisor
_STEPS = (1, -1, 2, -2, 3, -3)
_SIZE = re.compile(r"(heads|groups|experts|layers|dim|size|rank|width|channels)$")


class KeyChange(NamedTuple):
    """A config key and the new value that is tried for it."""

    key: Key
    value: Any

    @property
    def field(self) -> tuple[str, Any]:
        return self.key.path, str(self.value)


def solved(values: Mapping[str, Any], comparison: TreeComparison) -> Iterator[KeyChange]:
    """Yield key changes that make a differing size fit, sizes of the most tensors first."""
    by_votes = sorted(comparison.equations.items(), key=lambda item: -item[1])
    for equation, _ in by_votes:
        for symbol in sorted(equation.size.symbols):
            key_values = solutions(equation.size, symbol, equation.wanted)
            for value in filter(None, islice(key_values, _MOST_SOLUTIONS)):  # 0 would fit anything
                yield from of_key(values, symbol, value)


def of_key(values: Mapping[str, Any], symbol: Symbol, value: int) -> Iterator[KeyChange]:
    """Yield the change of the symbol's key to the value; `depths[1]` is item 1 of a list."""
    if (place := indexed(symbol.key)) is None:
        key = key_at(values, symbol.key, symbol.value)
        if value != symbol.value:
            yield KeyChange(key, value)
        return
    path, index = place
    key = key_at(values, path, None)
    stated = value_at(values, key.path)
    if isinstance(stated, list) and index < len(stated) and stated[index] != value:
        yield KeyChange(key._replace(value=stated), _with_item(stated, index, value))


HEADS = frozenset({"num_attention_heads", "n_head", "n_heads", "num_heads"})
GROUPS = frozenset({"num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads"})
HEAD_DIM = "head_dim"
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")


def is_heads(name: str) -> bool:
    """Whether a key of that name is a number of attention heads or of groups of heads."""
    return name in HEADS | GROUPS or name.endswith("attention_heads")


def width_of_heads(values: Mapping[str, Any], path: str, value: int) -> int:
    """Return the width of a head if the key has the value; 0 if the key does not count heads."""
    within, name = _beside(values, path)
    if name not in HEADS | GROUPS or not value:
        return 0
    width = _first_of(within, WIDTHS)
    if name in GROUPS:
        value = _first_of(within, sorted(HEADS))
    return 0 if not value or width % value else width // value


def _beside(values: Mapping[str, Any], path: str) -> tuple[Mapping[str, Any], str]:
    """Return the config object that contains a key, and the key's name in it."""
    folders, _, name = path.rpartition(".")
    within = value_at(values, folders) if folders else values
    return (within if isinstance(within, Mapping) else {}), name


def _first_of(within: Mapping[str, Any], keys: Iterable[str]) -> int:
    return next((within[key] for key in keys if type(within.get(key)) is int), 0)


def flags(keys: Iterable[Key]) -> Iterator[KeyChange]:
    """Yield every boolean key with the opposite value."""
    for key in keys:
        if isinstance(key.value, bool):
            yield KeyChange(key, not key.value)


def in_proportion(keys: Iterable[Key], comparison: TreeComparison) -> Iterator[KeyChange]:
    """Yield each key's value multiplied by stored / expected length, and by expected / stored.

    Keys named like sizes come first. The inverse is needed because a head's width shrinks as the
    number of heads grows.
    """
    lengths = {pair for pair in comparison.lengths if all(pair)}
    ratios = sorted(lengths | {(stored, expected) for expected, stored in lengths})
    for key in sorted(keys, key=lambda key: not _SIZE.search(key.path)):
        if type(key.value) is float:
            values = [key.value * stored / expected for expected, stored in ratios]
        elif type(key.value) is int:
            products = [(key.value * stored, expected) for expected, stored in ratios]
            values = [
                product // expected for product, expected in products if not product % expected
            ]
        else:
            continue
        yield from (KeyChange(key, one) for one in dict.fromkeys(values) if one != key.value)


def other_numbers(keys: Iterable[Key], comparison: TreeComparison) -> Iterator[KeyChange]:
    """Yield for each key the closest numbers in differing names, and values up to 3 away."""
    for key in keys:
        if type(key.value) is int:
            values = sorted(comparison.numbers, key=lambda one: abs(one - key.value))[:8]
            values += [key.value + step for step in _STEPS]
            for one in dict.fromkeys(values):
                if one >= 0 and one != key.value:
                    yield KeyChange(key, one)


def _with_item(items: list[Any], index: int, item: Any) -> list[Any]:
    return [*items[:index], item, *items[index + 1 :]]


def likely(key: Key, lengths: tuple[int, ...]) -> Iterator[KeyChange]:
    """Yield likely values for a key that is in no formula.

    First come divisors of the most frequent stored length, then stored lengths, then the key's
    value plus or minus 1 and 2.
    """
    if type(key.value) is not int:
        return
    width = lengths[0] if lengths else 0
    divisors = [value for value in range(1, min(width, 256) + 1) if not width % value]
    divisors.sort(key=lambda value: abs(value - key.value))
    for value in divisors[:16]:
        yield KeyChange(key, value)
    for value in lengths[:32]:
        yield KeyChange(key, value)
    for step in _STEPS[:4]:
        yield KeyChange(key, key.value + step)


def plausibility(values: Mapping[str, Any], changes: Iterable[KeyChange]) -> tuple[Any, ...]:
    """Return a sort key that prefers stated keys, usual head widths, and small changes."""
    ranks = [_strangeness(values, change) for change in changes]
    return tuple(map(max, zip(*ranks, strict=True)))


# Widths of heads in published models, most frequent first.
USUAL_HEADS = (64, 128, 32, 80, 96, 256, 16, 8)
WIDEST = 512  # of a head in published models


def _strangeness(
    values: Mapping[str, Any], change: KeyChange
) -> tuple[bool, bool, bool, bool, bool, bool, int, int, float]:
    key, value = change.key, change.value
    share = width_of_heads(values, key.path, value) if type(value) is int else 0
    place = USUAL_HEADS.index(share) if share in USUAL_HEADS else len(USUAL_HEADS)
    heads = is_heads(key.path.rpartition(".")[2])
    return (
        type(value) is int and value == 0,
        type(value) is float,
        heads and type(value) is int and not 0 < share <= WIDEST,
        key.default,
        bool(share) and place > 1,
        is_heads(name := key.path.rpartition(".")[2]) and name not in GROUPS,
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
