"""A tree of blocks from a list of tensors, with guessed formulas.

If only the oracle knows a class, a length, or the number of modules of a list, that equals the
value of exactly one config key is assumed to be this key. If several keys have the value, each is
changed in turn, and the lengths that change with it are its own. A wrong guess gives a value that
the oracle's next list of tensors refutes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from auditor.analytic.config_keys import name_of
from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Symbol
from auditor.analytic.generated.tree import tree_of_sizes
from auditor.analytic.layer_lists import resized
from auditor.analytic.outline import ClassTree
from auditor.analytic.size_keys import DEPTH, is_heads
from auditor.diagnosis.solving.holdings import module_counts
from auditor.name_kinds import kinds_of, name_pattern

Shapes = Mapping[str, tuple[int, ...]]
_Place = tuple[str, int | None]  # pattern of a name and an axis; of a list of modules and None

_MOST_PROBED = 8  # keys that are changed in turn; the oracle takes 50 ms or more for each
_MODULES = None  # in place of an axis: the number of modules of a list


def shared_keys(
    shapes: Shapes, config: Mapping[str, Any], implied: Callable[[Mapping[str, Any]], Shapes | None]
) -> Mapping[_Place, str]:
    """Return the key of each length whose value several keys have, found by changing each key.

    `implied` returns the shapes that other values of keys imply. A length that changes with several
    keys is left out.
    """
    counts = module_counts(kinds_of(shapes))
    lengths = {length for shape in shapes.values() for length in shape} | set(counts.values())
    numbers = [one for one in _numbers(config, "") if not is_heads(one[0])]
    frequency = Counter(value for _, value in numbers)
    shared = [one for one in numbers if frequency[one[1]] > 1 and one[1] in lengths]
    found: dict[_Place, set[str]] = {}
    for path, value in shared[:_MOST_PROBED]:
        changed = {path: value + 1 if DEPTH.search(path) else 2 * value}
        other = implied({**changed, **dict(resized(config, changed))}) or {}
        for name in shapes.keys() & other.keys():
            for axis, (before, after) in enumerate(zip(shapes[name], other[name], strict=False)):
                if (before, after) == (value, changed[path]):
                    found.setdefault((name_pattern(name), axis), set()).add(path)
        for name, count in module_counts(kinds_of(other)).items():
            if (counts.get(name), count) == (value, changed[path]):
                found.setdefault((name_pattern(name), _MODULES), set()).add(path)
    return {place: paths.pop() for place, paths in found.items() if len(paths) == 1}


def tree_of_shapes(
    shapes: Shapes, config: Mapping[str, Any], shared: Mapping[_Place, str] | None = None
) -> ClassTree:
    """Return the tree of these tensors.

    A length that equals the value of exactly one config key is written as the symbol of that key,
    and a length in `shared` as the key there.
    """
    keys = _keys_by_value(config, shared or {})
    lists = module_counts(kinds_of(shapes))
    sizes = {name: keys.of_shape(name_pattern(name), shape) for name, shape in shapes.items()}
    counts = {name: dim(keys.of_list(name_pattern(name), lists[name])) for name in lists}
    return ClassTree(tree_of_sizes(sizes, counts), "")


class _Keys(NamedTuple):
    """The config keys that may be the source of a length or a number of modules."""

    widths: Mapping[int, Dim]  # by their value
    depths: Mapping[int, Dim]
    every: Mapping[str, Dim]  # by path
    shared: Mapping[_Place, str]

    def of_shape(self, name: str, shape: tuple[int, ...]) -> tuple[Dim | int, ...]:
        return tuple(
            self._shared((name, axis), length) or self.widths.get(length) or length
            for axis, length in enumerate(shape)
        )

    def of_list(self, name: str, count: int) -> Dim | int:
        size = self._shared((name, _MODULES), count) or self.depths.get(count)
        return count if size is None else size

    def _shared(self, place: _Place, length: int) -> Dim | None:
        size = self.every.get(self.shared.get(place, ""))
        return size if size is not None and size.value == length else None


def _keys_by_value(config: Mapping[str, Any], shared: Mapping[_Place, str]) -> _Keys:
    widths: dict[int, list[Dim]] = {}
    depths: dict[int, list[Dim]] = {}
    every: dict[str, Dim] = {}
    for path, value in _numbers(config, ""):
        name = name_of(path)
        size = dim(Symbol(letter=name, key=path, value=value, default=False))
        every[path] = size
        (depths if DEPTH.search(name) else widths).setdefault(value, []).append(size)
    by_width, by_depth = _unique(widths), _unique(depths)
    return _Keys(by_width, {**by_width, **by_depth}, every, shared)


def _unique(dims: Mapping[int, list[Dim]]) -> dict[int, Dim]:
    return {value: one[0] for value, one in dims.items() if len(one) == 1}


def _numbers(config: Mapping[str, Any], within: str) -> Iterator[tuple[str, int]]:
    for name, value in config.items():
        if type(value) is int and value > 1 and not name.endswith("_token_id"):
            yield f"{within}{name}", value
        elif isinstance(value, Mapping) and name.endswith("_config"):
            yield from _numbers(value, f"{within}{name}.")
