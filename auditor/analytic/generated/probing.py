"""The size formulas of a class that only the oracle knows, found by changing one key at a time.

A length that is proportional to a key contains it as a factor, or as a divisor; other keys that
change the length are terms of a sum: `(H + 2*K)*d` doubles with `d`, and grows with `H` and `K`. A
wrong formula gives a value that the oracle's next list of tensors refutes.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from auditor.analytic.config_keys import changed, every_key, value_at
from auditor.analytic.dims import Dim, dim, product_of_dims
from auditor.analytic.expectation import Symbol
from auditor.analytic.generated.tree import tree_of_sizes
from auditor.analytic.layer_lists import resized
from auditor.analytic.outline import ClassTree
from auditor.analytic.size_keys import DEPTH
from auditor.name_kinds import kinds_of, module_counts, name_pattern

Shapes = Mapping[str, tuple[int, ...]]
Implied = Callable[[Mapping[str, Any]], Shapes | None]  # values of keys -> the shapes they imply
_Place = tuple[str, int | None]  # pattern of a name and an axis; of a list of modules and None

_MOST_PROBED, _MOST_BUILT = 32, 48  # keys that are changed; models, 20 ms or more for each
_LAYERS = 4  # depth of the models in which keys are changed
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
            value = value_at(config, path)
            is_stated = type(value) is int
            size = value if is_stated else defaults[path]
            return dim(Symbol(letter=path, key=path, value=size, default=not is_stated))

        paths = (*self.factors, *self.divisors, *(path for path, _ in self.terms))
        if any(type(value_at(config, one)) is not int and one not in defaults for one in paths):
            return None
        total = sum((number * key(path) for path, number in self.terms), dim(self.constant))
        whole = product_of_dims([total, *map(key, self.factors)])
        divisor = product_of_dims(map(key, self.divisors))
        return None if not divisor.value or whole.value % divisor.value else whole // divisor


def probed_formulas(config: Mapping[str, Any], implied: Implied) -> Mapping[_Place, Formula]:
    """Return the formula of each length that changes with keys, by its place."""
    numbers = dict(_numbers(config))
    depths = {path: _LAYERS for path in numbers if DEPTH.search(path) and numbers[path] > _LAYERS}
    fewer = {**depths, **dict(resized(config, depths))}
    lengths = dict(_lengths(implied(fewer) or {}))
    if not lengths:
        fewer, lengths = {}, dict(_lengths(implied({}) or {}))
    values = {**numbers, **{path: value for path, value in depths.items() if fewer}}
    slopes: dict[_Place, dict[str, Fraction]] = {}
    left = _MOST_BUILT
    for path in sorted(numbers, key=lambda path: value_at(config, path) is None)[:_MOST_PROBED]:
        for probe in _probes(path, values[path])[:left]:
            left -= 1
            lists = dict(resized(changed(config, fewer), {path: probe}))
            after = dict(_lengths(implied({**fewer, **lists, path: probe}) or {}))
            for place in lengths.keys() & after.keys():
                if after[place] != lengths[place]:
                    step = Fraction(after[place] - lengths[place], probe - values[path])
                    slopes.setdefault(place, {})[path] = step
            if after:
                break
    found = {place: _formula(lengths[place], keys, values) for place, keys in slopes.items()}
    return {place: formula for place, formula in found.items() if formula}


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key in every_key(config):
        if type(key.value) is int and key.value > 1 and not key.path.endswith("_token_id"):
            yield key.path, key.value


def _probes(path: str, value: int) -> tuple[int, ...]:
    """Return other values of a key: what divides a width also divides twice the width."""
    return (value + 1, 2 * value) if DEPTH.search(path) else (2 * value, value // 2, value + 1)


def _lengths(shapes: Shapes) -> Iterator[tuple[_Place, int]]:
    """Yield the lengths of one tensor of each kind of names, and the numbers of modules."""
    kinds = kinds_of(shapes)
    for kind in kinds:
        yield from (((kind.pattern, axis), n) for axis, n in enumerate(shapes[kind.names[0]]))
    for name, count in module_counts(kinds).items():
        yield (name_pattern(name), _MODULES), count


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
    def size(pattern: str, axis: int | None, length: int) -> Dim:
        formula = formulas.get((pattern, axis))
        found = formula and formula.at(config, defaults)
        return found if found and found.value == length else dim(length)

    kinds = kinds_of(shapes)
    sizes = {
        name: tuple(size(kind.pattern, axis, length) for axis, length in enumerate(shapes[name]))
        for kind in kinds
        for name in kind.names
    }
    lists = module_counts(kinds)
    counts = {name: size(name_pattern(name), _MODULES, count) for name, count in lists.items()}
    return ClassTree(tree_of_sizes({name: sizes[name] for name in shapes}, counts), "")
