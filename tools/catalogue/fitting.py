"""Exact fits of integers, lists and tests, as expressions of the keys that act on them.

An expression is a tuple in the grammar of `auditor.analytic.generated.expressions`.
"""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from auditor.analytic.generated.expressions import Outside, evaluator

Expression = Any
_FACTORS = (1, 2, 3, 4, 6, 8, 9, -1)
_MOST_TERMS = 300
_FEW = 5  # numbers, of which long sums and pieces of pieces are tried
_ENOUGH = 250  # observations of a test; the others are checked afterwards


class Observation(NamedTuple):
    """The keys' values and the loop indices under which something was observed."""

    leaves: dict[str, Any]
    index: tuple[int, ...] = ()


TEXTS: dict[tuple[int, str], str] = {}  # by the id of a sample's leaves, which live on

HINTS: list[Expression] = []  # expressions of the class to try


def text_of(leaves: dict[str, Any], name: str) -> str:
    """Return a key's value as JSON."""
    place = id(leaves), name
    if place not in TEXTS:
        TEXTS[place] = json.dumps(leaves.get(name))
    return TEXTS[place]


def key(name: str) -> Expression:
    return ["k", name]


def columns(seen: Sequence[Observation], keys: Sequence[str], *, indices: bool = True) -> Any:
    """Return [(expression, vector)] for each number that all observations have."""
    found: dict[str, tuple[Expression, list[int]]] = {}
    for place, one in enumerate(seen):
        for expression, value in _numbers(one, keys, indices=indices):
            text = json.dumps(expression)
            if place == 0:
                found[text] = (expression, [])
            if text in found and len(found[text][1]) == place:
                found[text][1].append(value)
    common = [(e, v) for e, v in found.values() if len(v) == len(seen) and max(map(abs, v)) < 2**40]
    return [(e, np.array(v, dtype=np.int64)) for e, v in common]


def _numbers(
    one: Observation, keys: Sequence[str], *, indices: bool
) -> Iterator[tuple[Expression, int]]:
    for name in keys:
        value = one.leaves.get(name)
        if type(value) is int:
            yield key(name), value
        elif isinstance(value, list):
            yield ["len", key(name)], len(value)
            if value and all(type(item) is int for item in value):
                for level, i in enumerate(one.index):
                    if i < len(value):
                        yield ["at", key(name), ["i", level]], value[i]
                    if 0 < i <= len(value):
                        yield ["at", key(name), ["-", ["i", level], 1]], value[i - 1]
                yield ["at", key(name), 0], value[0]
                yield ["at", key(name), -1], value[-1]
    for expression in (*HINTS, *_head_widths(one, keys)):
        with suppress(Outside):
            value = evaluator(expression)(one.leaves, one.index)
            if type(value) is int:
                yield expression, value
    for level, i in enumerate(one.index) if indices else ():
        yield ["i", level], i
        if i < 8:
            yield ["2^", ["i", level]], 2**i


def _head_widths(one: Observation, keys: Sequence[str]) -> Iterator[Expression]:
    """Yield the width of a head that a config may leave to the width and the number of heads."""
    for name in keys:
        path = name.removesuffix("head_dim")
        width, heads = f"{path}hidden_size", f"{path}num_attention_heads"
        if path != name and {width, heads} <= one.leaves.keys():
            yield ["if", ["bool", key(name)], key(name), ["//", key(width), key(heads)]]


def _monomials(variables: Any, *, rich: bool) -> Iterator[tuple[Expression, Any]]:
    yield from variables
    for (a, x), (b, y) in itertools.combinations_with_replacement(variables, 2):
        yield ["*", a, b], x * y
    for (a, x), (b, y) in itertools.permutations(variables, 2):
        if (y > 0).all():
            yield ["//", a, b], x // y
    if not rich:
        return
    for c in (2, 3, 4, 8, 16, 32):
        for a, x in variables:
            yield ["//", ["+", a, c - 1], c], -(-x // c)
            yield ["//", a, c], x // c
    for (a, x), (b, y) in itertools.permutations(variables, 2):
        yield ["*", ["*", a, b], b], x * y * y
        if (y > 0).all():
            yield ["*", b, ["//", a, b]], y * (x // y)
            yield ["*", ["//", a, b], ["//", a, b]], (x // y) ** 2
    for (a, x), (b, y), (c, z) in itertools.permutations(variables[:9], 3):  # as heads are
        if (z > 0).all():
            yield ["*", a, ["//", b, c]], x * (y // z)
    for (a, x), (b, y), (c, z) in itertools.permutations(variables[:9], 3):
        if (z > 0).all():
            yield ["//", ["*", a, b], c], x * y // z
            yield ["*", ["//", a, c], ["//", b, c]], (x // z) * (y // z)
            yield ["//", ["*", a, b], ["*", c, c]], x * y // (z * z)
        yield ["*", ["*", a, b], c], x * y * z


def fit_number(y: Any, variables: Any, *, rich: bool = False, terms: int = 3) -> Expression | None:
    """Return an expression that is y in every observation, the simplest that is found, or None."""
    if (y == y[0]).all():
        return int(y[0])
    if not variables:
        return None
    distinct = len({tuple(row) for row in np.stack([y, *(v for _, v in variables)]).T.tolist()})
    products: dict[bytes, tuple[Expression, Any]] = {}
    for expression, vector in _monomials(variables, rich=rich):
        if not (vector == vector[0]).all() and np.abs(vector).max() < 2**40:
            products.setdefault(vector.tobytes(), (expression, vector))
    if y.tobytes() in products:
        return products[y.tobytes()][0]
    if distinct < 3:
        return None
    for expression, v in products.values():
        if v[0] and y[0] and (y * v[0] == v * y[0]).all():
            divisor = int(np.gcd(y[0], v[0]))
            p, q = int(y[0]) // divisor, int(v[0]) // divisor
            return ["*", p, expression] if q == 1 else ["//", ["*", p, expression], q]
    if distinct < 5 or terms == 1:
        return None
    shifted: dict[bytes, tuple[Expression, int]] = {}
    for expression, v in products.values():
        for factor in _FACTORS:
            w = factor * v
            scaled = expression if factor == 1 else ["*", factor, expression]
            shifted.setdefault((w - w[0]).tobytes(), (scaled, int(w[0])))
    delta = y - y[0]

    def total(*parts: tuple[Expression, int]) -> Expression:
        offset = int(y[0]) - sum(start for _, start in parts)
        expression = parts[0][0]
        for other, _ in parts[1:]:
            expression = ["+", expression, other]
        return ["+", expression, offset] if offset else expression

    if delta.tobytes() in shifted:
        return total(shifted[delta.tobytes()])
    if distinct < 8:
        return None
    vectors = [(np.frombuffer(b, dtype=np.int64), part) for b, part in shifted.items()]
    for v, part in vectors:
        rest = (delta - v).tobytes()
        if rest in shifted:
            return total(part, shifted[rest])
    if distinct < 12:
        return None
    if len(vectors) > _MOST_TERMS:  # the plain ones
        vectors = [(v, part) for v, part in vectors if '"//"' not in json.dumps(part[0])]
        vectors = sorted(vectors, key=lambda one: len(str(one[1][0])))[:_MOST_TERMS]
    for place, (v, part) in enumerate(vectors):
        for w, other in vectors[place:]:
            rest = (delta - v - w).tobytes()
            if rest in shifted:
                return total(part, other, shifted[rest])
    return None


def tests(seen: Sequence[Observation], keys: Sequence[str]) -> dict[tuple[bool, ...], Expression]:
    """Return candidate tests by their truth in each observation."""
    found: dict[tuple[bool, ...], Expression] = {}
    for expression in _candidates(seen, keys):
        test = evaluator(expression)
        try:
            truth = tuple(bool(test(one.leaves, one.index)) for one in seen)
        except Outside:
            continue
        if any(truth) and not all(truth):
            found.setdefault(truth, expression)
    return found


def _candidates(seen: Sequence[Observation], keys: Sequence[str]) -> Iterator[Expression]:
    levels = range(min(len(one.index) for one in seen))
    yield from HINTS
    for level in levels:
        yield from (["==", ["i", level], c] for c in sorted({one.index[level] for one in seen})[:6])
        yield ["==", ["%", ["i", level], 2], 0]
    for name in keys:
        values = [one.leaves.get(name) for one in seen]
        texts = sorted({text_of(one.leaves, name) for one in seen})
        is_list = any(isinstance(value, list) for value in values)
        is_float = any(type(v) is float for v in values)
        if (
            not is_list
            and not is_float
            and (len(texts) <= 3 or not any(type(v) is int for v in values))
        ):
            for text in texts[:8]:
                yield ["==", key(name), ["q", json.loads(text)]]
        if is_float or any(type(v) is int or v is None or type(v) is bool for v in values):
            yield ["bool", key(name)]
        if any(type(v) is int for v in values):
            yield ["<", 1, key(name)]
        for level in levels:
            i = ["i", level]
            if is_list:
                items = {json.dumps(x) for v in values if isinstance(v, list) for x in v}
                if len(items) <= 12:
                    for text in sorted(items):
                        yield ["==", ["at", key(name), i], ["q", json.loads(text)]]
                yield ["in", i, key(name)]
                yield ["==", i, ["-", ["len", key(name)], 1]]
            elif any(type(v) is int for v in values):
                yield ["<", i, key(name)]
                yield ["==", i, ["-", key(name), 1]]
                yield ["and", key(name), ["==", ["%", i, key(name)], 0]]
                yield ["and", key(name), ["==", ["%", ["+", i, 1], key(name)], 0]]
    numbers = [name for name in keys if all(type(one.leaves.get(name)) is int for one in seen)]
    for a, b in itertools.combinations(numbers[:8], 2):
        yield ["==", key(a), key(b)]


def fit_test(
    truth: Sequence[bool], seen: Sequence[Observation], keys: Sequence[str]
) -> Expression | None:
    """Return a test with this truth, of at most three parts, or None."""
    if len(seen) <= _ENOUGH:
        return _fit_test(tuple(truth), seen, keys)
    some = set(random.Random(3).sample(range(len(seen)), _ENOUGH // 2))
    some |= set([n for n, t in enumerate(truth) if t][:20])
    some |= set([n for n, t in enumerate(truth) if not t][:20])
    for _ in range(4):
        places = sorted(some)
        expression = _fit_test(tuple(truth[n] for n in places), [seen[n] for n in places], keys)
        if expression is None:
            return None
        test = evaluator(expression)
        try:
            wrong = [
                n for n, one in enumerate(seen)
                if bool(test(one.leaves, one.index)) != truth[n]
            ]  # fmt: skip
        except Outside:
            return None
        if not wrong:
            return expression
        some |= set(wrong[:40])
    return None


def _fit_test(
    truth: tuple[bool, ...], seen: Sequence[Observation], keys: Sequence[str]
) -> Expression | None:
    if len(set(truth)) == 1:
        return truth[0]
    every = tests(seen, keys)
    # sizes that happen to be equal are the last reason
    likely = {truth: test for truth, test in every.items() if not _is_of_two_sizes(test, seen)}
    return next(
        (test for some in (likely, every) if (test := _test_of(truth, some)) is not None), None
    )


def _test_of(
    truth: tuple[bool, ...], candidates: dict[tuple[bool, ...], Expression]
) -> Expression | None:
    """Return a test with this truth of at most three of the candidates, or None."""
    opposite = tuple(not one for one in truth)
    if truth in candidates:
        return candidates[truth]
    if opposite in candidates:
        return ["not", candidates[opposite]]
    literals = [
        *candidates.items(),
        *((tuple(not b for b in t), ["not", e]) for t, e in candidates.items()),
    ]
    wider = [(t, e) for t, e in literals if all(b or not a for a, b in zip(truth, t, strict=True))]
    narrower = [
        (t, e) for t, e in literals if all(a or not b for a, b in zip(truth, t, strict=True))
    ]
    for (t, e), (u, f) in itertools.combinations(wider, 2):
        if tuple(a and b for a, b in zip(t, u, strict=True)) == truth:
            return ["and", e, f]
    for (t, e), (u, f) in itertools.combinations(narrower, 2):
        if tuple(a or b for a, b in zip(t, u, strict=True)) == truth:
            return ["or", e, f]
    for (t, e), (u, f), (v, g) in itertools.combinations(wider[:30], 3):
        if tuple(a and b and c for a, b, c in zip(t, u, v, strict=True)) == truth:
            return ["and", ["and", e, f], g]
    return None


def fit_value(
    values: Sequence[int], seen: Sequence[Observation], keys: Sequence[str]
) -> Expression | None:
    """Fit a number; in two pieces by one test if no single expression fits."""
    y = np.array(values, dtype=np.int64)
    variables = columns(seen, keys)
    for rich, terms in ((False, 1), (True, 1), (False, 3), (True, 3)):
        if rich and len(variables) > 8:
            continue
        found = fit_number(y, variables, rich=rich, terms=terms)
        if found is not None:
            return found
    depth = 2 if len(variables) <= _FEW else 1
    return _in_pieces(y, seen, keys, depth) or _by_place(values, seen)


def _in_pieces(
    y: Any, seen: Sequence[Observation], keys: Sequence[str], depth: int
) -> Expression | None:
    """Return two expressions by one test, of which one may have pieces of its own."""
    for truth, test in list(tests(seen, keys).items())[: 60 if depth == 1 else 20]:
        if _is_chance(test, seen):
            continue
        halves = [[n for n, t in enumerate(truth) if t is side] for side in (True, False)]
        if min(map(len, halves)) < 2:
            continue
        sides = [[seen[n] for n in half] for half in halves]
        pieces = [_piece(y[half], side, keys) for half, side in zip(halves, sides, strict=True)]
        if pieces.count(None) == 1 and depth > 1:
            place = pieces.index(None)
            pieces[place] = _in_pieces(y[halves[place]], sides[place], keys, depth - 1)
        if None not in pieces:
            return ["if", test, *pieces]
    return None


def _piece(y: Any, seen: Sequence[Observation], keys: Sequence[str]) -> Expression | None:
    variables = columns(seen, keys)
    piece = fit_number(y, variables)
    if piece is None and len(variables) <= 8:
        piece = fit_number(y, variables, rich=True, terms=3 if len(variables) <= _FEW else 1)
    return piece


def _by_place(values: Sequence[int], seen: Sequence[Observation]) -> Expression | None:
    """Return a table by one loop's index if nothing else acts on the values."""
    for level in range(min(len(one.index) for one in seen)):
        table: dict[int, int] = {}
        pairs = zip(values, seen, strict=True)
        if all(table.setdefault(one.index[level], value) == value for value, one in pairs):
            places = range(max(table) + 1)
            return ["at", ["q", [table.get(place) for place in places]], ["i", level]]
    return None


def _is_chance(test: Expression, seen: Sequence[Observation]) -> bool:
    """Return whether a test compares a number of the config with a number that is not 0 or 1.

    Sizes that happen to be equal in a few observations are no reason for another formula.
    """
    match test:
        case ["==", ["k", _], ["q", value]]:
            return type(value) is int and value > 1
    return _is_of_two_sizes(test, seen)


def _is_of_two_sizes(test: Expression, seen: Sequence[Observation]) -> bool:
    match test:
        case ["==", ["k", name], ["k", _]]:
            return all(type(one.leaves.get(name)) is int for one in seen)
    return False


def fit_choice(
    values: Sequence[Any], seen: Sequence[Observation], keys: Sequence[str]
) -> Expression | None:
    """Fit strings, flags and null: a chain of tests, one for each value but the last."""
    texts = [json.dumps(value) for value in values]
    distinct = sorted(set(texts), key=texts.count)
    chain: Expression = ["q", json.loads(distinct[-1])]
    if len(distinct) > 6:
        return None
    for text in distinct[:-1]:
        test = fit_test([one == text for one in texts], seen, keys)
        if test is None:
            return None
        chain = ["if", test, ["q", json.loads(text)], chain]
    return chain


def fit_any(
    values: Sequence[Any], seen: Sequence[Observation], keys: Sequence[str]
) -> tuple[Expression, Expression] | None:
    """Fit the values of a derived key: (None or a list's length, the value or an item)."""
    if all(type(value) is int for value in values):
        found = fit_value(values, seen, keys)
        return None if found is None else (None, found)
    if all(isinstance(value, list) for value in values):
        length = fit_value([len(value) for value in values], seen, keys)
        items = [
            (item, Observation(one.leaves, (place,)))
            for value, one in zip(values, seen, strict=True)
            for place, item in enumerate(value)
        ]
        if length is None or not items or len(items) > 3000:
            return None
        elements, at = [item for item, _ in items], [one for _, one in items]
        numbers = all(type(item) is int for item in elements)
        found = (fit_value if numbers else fit_choice)(elements, at, keys)
        return None if found is None else (length, found)
    if any(isinstance(value, list | dict | float) for value in values):
        return None
    found = fit_choice(values, seen, keys)
    return None if found is None else (None, found)
