"""The size formulas of a class that only the oracle knows, found by changing one key at a time.

A length that is proportional to a key contains it as a factor, or as a divisor; other keys that
change the length are terms of a sum: `(H + 2*K)*d` doubles with `d`, and grows with `H` and `K`. A
wrong formula gives a value that the oracle's next list of tensors refutes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from auditor.analytic.blocks import Block, Module, Param, list_of_modules
from auditor.analytic.config_keys import changed, every_key, indexed, number_at, with_item
from auditor.analytic.dims import Dim, dim, product_of_dims
from auditor.analytic.expectation import Symbol
from auditor.analytic.outline import ClassTree
from auditor.diagnosis.solving import limits
from auditor.diagnosis.solving.layer_lists import resized
from auditor.diagnosis.solving.size_keys import DEPTH
from auditor.names.kinds import kinds_of, module_counts

Shapes = Mapping[str, tuple[int, ...]]
Implied = Callable[[Mapping[str, Any]], Shapes | None]  # values of keys -> the shapes they imply
_Place = tuple[str, int | None]  # a name and an axis; the name of a list of modules and None

_LAYERS = limits.PROBED_LAYERS
_LATER = re.compile(rf"(?<![^.])(\d\d+|[{_LAYERS}-9])(?![^.])")  # numbers from _LAYERS on
_Nested = dict[str, Any]  # part of a name -> the parts that may follow, or the tensor
_MODULES = None  # in place of an axis: the number of modules of a list


class Formula(NamedTuple):
    """A length as product / divisors * (sum of coefficient * key, plus a constant)."""

    factors: tuple[str, ...]  # paths of keys
    divisors: tuple[str, ...]
    terms: tuple[tuple[str, int], ...]
    constant: int

    def at(self, config: Mapping[str, Any], defaults: Mapping[str, int]) -> Dim | None:
        """Return the length with the config's values, else with the `defaults` by path.

        Return None if a key has no integer value, or if a division leaves a rest.
        """

        def key(path: str) -> Dim:
            value = number_at(config, path)
            is_stated = type(value) is int
            size = value if is_stated else defaults[path]
            return dim(Symbol(letter=path, key=path, value=size, default=not is_stated))

        paths = (*self.factors, *self.divisors, *(path for path, _ in self.terms))
        if any(type(number_at(config, one)) is not int and one not in defaults for one in paths):
            return None
        total = sum((number * key(path) for path, number in self.terms), dim(self.constant))
        whole = product_of_dims([total, *map(key, self.factors)])
        divisor = product_of_dims(map(key, self.divisors))
        return None if not divisor.value or whole.value % divisor.value else whole // divisor


def probed_formulas(config: Mapping[str, Any], implied: Implied) -> Mapping[_Place, Formula]:
    """Return the formula of each length that changes with keys, by its place.

    A place has a name in which every number is less than _LAYERS.
    """
    declared = {key.path: key.value for key in every_key(config)}
    numbers = dict(_numbers(config))
    depths = {path: _LAYERS for path in numbers if DEPTH.search(path) and numbers[path] > _LAYERS}
    fewer = {**depths, **dict(resized(config, depths))}
    shapes = implied(fewer) or {}
    if not shapes:
        fewer, shapes = {}, implied({}) or {}
    lengths = dict(_lengths(shapes))
    values = {**numbers, **{path: value for path, value in depths.items() if fewer}}
    slopes: dict[_Place, dict[str, Fraction]] = {}
    left = min(limits.PROBED_MODELS, limits.ORACLE_TENSORS // max(1, len(shapes)))
    ordered = sorted(numbers, key=lambda path: number_at(config, path) is None)
    for path in ordered[: limits.PROBED_KEYS]:
        for probe in _probes(path, values[path])[:left]:
            left -= 1
            change = _change(declared, path, probe)
            lists = dict(resized(changed(config, fewer), change))
            after = dict(_lengths(implied({**fewer, **lists, **change}) or {}))
            for place in lengths.keys() & after.keys():
                if after[place] != lengths[place]:
                    step = Fraction(after[place] - lengths[place], probe - values[path])
                    slopes.setdefault(place, {})[path] = step
            if after:
                break
    # An omitted key may repeat others: a head's width that is hidden_size / num_attention_heads.
    omitted = {key.path for key in every_key(config) if key.default}
    found: dict[_Place, Formula] = {}
    for place, keys in slopes.items():
        stated = {path: slope for path, slope in keys.items() if path not in omitted}
        some = (_formula(lengths[place], one, values) for one in (keys, stated) if one)
        if formula := next(filter(None, some), None):
            found[place] = formula
    return found


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield (path, value) of each number above 1 in the config and in its short lists."""
    for key in every_key(config):
        is_short = isinstance(key.value, list) and len(key.value) <= limits.PROBED_ITEMS
        items = key.value if is_short else ()
        values = {f"{key.path}[{at}]": item for at, item in enumerate(items)} or {
            key.path: key.value
        }
        for path, value in values.items():
            if type(value) is int and value > 1 and not path.endswith("_token_id"):
                yield path, value


def _change(values: Mapping[str, Any], path: str, value: int) -> dict[str, Any]:
    """Return {path: value}; for an item, the path of its list, and the list with the value."""
    outer, index = indexed(path)
    return {path: value} if index is None else {outer: with_item(values[outer], index, value)}


def _probes(path: str, value: int) -> tuple[int, ...]:
    """Return other values of a key: what divides a width also divides twice the width."""
    return (value + 1, 2 * value) if DEPTH.search(path) else (2 * value, value // 2, value + 1)


def _lengths(shapes: Shapes) -> Iterator[tuple[_Place, int]]:
    """Yield the lengths of the tensors and the numbers of modules in the first modules of lists."""
    for name, shape in shapes.items():
        if name == _among_the_first(name):
            yield from (((name, axis), length) for axis, length in enumerate(shape))
    for name, count in module_counts(kinds_of(shapes)).items():
        if name == _among_the_first(name):
            yield (name, _MODULES), count


def _among_the_first(name: str) -> str:
    """Return the name with 0 for each number from _LAYERS on."""
    return _LATER.sub("0", name)


def _similar(name: str) -> Iterator[str]:
    """Yield the name with 0 for some numbers: at first for later ones, then from the last on."""
    parts = _among_the_first(name).split(".")
    yield ".".join(parts)
    for at, part in reversed([*enumerate(parts)]):
        if part.isdecimal() and part != "0":
            parts[at] = "0"
            yield ".".join(parts)


def _formula(
    length: int, slopes: Mapping[str, Fraction], values: Mapping[str, int]
) -> Formula | None:
    """Return the formula with these slopes by key; None if no sum or product has them.

    A key is a factor if its slope times its value is the length, and a divisor if its doubled value
    halves the length: the slope times twice the value is the length's negative.
    """
    factors = tuple(path for path, slope in slopes.items() if slope * values[path] == length)
    divisors = tuple(
        path
        for path, slope in slopes.items()
        if slope * values[path] in {-Fraction(length, 2), -2 * length}
    )
    scale = Fraction(1)
    for path in factors:
        scale *= values[path]
    for path in divisors:
        scale /= values[path]
    rest = {path: slope / scale for path, slope in slopes.items() if path not in factors + divisors}
    constant = length / scale - sum(slope * values[path] for path, slope in rest.items())
    if any(number.denominator > 1 or number < 0 for number in (constant, *rest.values())):
        return None
    terms = tuple((path, int(number)) for path, number in rest.items())
    return Formula(factors, divisors, terms, int(constant))


def tree_of_shapes(
    shapes: Shapes, config: Mapping[str, Any], formulas: Mapping[_Place, Formula]
) -> ClassTree:
    """Return the tree of these tensors, with formulas for the lengths that have the value."""
    defaults = dict(_numbers(config))

    @cache
    def size(name: str, axis: int | None, length: int) -> Dim:
        places = ((one, axis) for one in _similar(name))
        formula = next(filter(None, map(formulas.get, places)), None)
        found = formula and formula.at(config, defaults)
        return found if found and found.value == length else dim(length)

    def size_of(name: str, axis: int | None, length: int) -> Dim:
        return size(_among_the_first(name), axis, length)

    equal: dict[Block, Block] = {}  # equal layers are one object

    def block(below: _Nested, path: str) -> Block:
        blocks = {
            part: block(inner, f"{path}.{part}" if path else part)
            if isinstance(inner, dict)
            else inner
            for part, inner in below.items()
        }
        tree = list_of_modules(size_of(path, _MODULES, len(blocks)), blocks)
        return equal.setdefault(tree, tree)

    nested: _Nested = {}
    for name, shape in shapes.items():
        *folders, last = name.split(".")
        within = nested
        for folder in folders:
            within = within.setdefault(folder, {})
        lengths = enumerate(shape)
        within[last] = Param(tuple(size_of(name, axis, length) for axis, length in lengths))
    tree = block(nested, "")
    assert isinstance(tree, Module)  # noqa: S101 - a model has a tensor with a name
    return ClassTree(tree, "")
