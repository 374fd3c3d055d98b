"""The comparison of a config's tree with the stored tensors, which takes a millisecond.

One tensor represents all whose names differ only in their numbers (a kind of names).
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from auditor.analytic.dims import Dim, dim
from auditor.analytic.lookup import ModuleList, NamePath, follow
from auditor.analytic.outline import ClassTree, Leaf, leaves, spellings
from auditor.diagnosis.solving.held_tensors import HeldTensors
from auditor.layouts.packing import Shape
from auditor.names.kinds import name_pattern
from auditor.names.parts import number_in_list, number_of

Trees = Callable[[Mapping[str, Any]], ClassTree | None]  # config values -> tree of blocks


class Equation(NamedTuple):
    """A size formula, and the value that it must have for a stored tensor to be expected."""

    size: Dim
    wanted: int


class TreeComparison(NamedTuple):
    """The differences between a tree and the stored tensors."""

    differ: int  # number of differing tensors; one of a kind of names stands for all
    strange: int  # number of stored tensors that differ and are in no expected list
    equations: Mapping[Equation, int]  # each with the number of tensors that need it
    lengths: frozenset[tuple[int, int]]  # (expected, stored) of axes that differ
    numbers: frozenset[int]  # counts of modules, by the numbers in missing or unexpected names
    names: frozenset[str]  # patterns of the names that differ


class Trials:
    """Comparisons of one checkpoint with several trees.

    A kind of names is excused (left out) if it differs under the unchanged config without being
    alarming.
    """

    def __init__(self, holdings: HeldTensors, alarming: Collection[str] | None) -> None:
        self.holdings = holdings
        self._excused = frozenset[str]()  # patterns of names that are left out
        self._alarming = None if alarming is None else frozenset(alarming)

    def excuse(self, as_it_is: ClassTree) -> None:
        """Leave out the differences of the tree `as_it_is` that are not alarming."""
        if self._alarming is not None:
            self._excused = self.compare(as_it_is).names - self._alarming

    def held_keys(self, expected: ClassTree) -> Counter[str]:
        """Return, by key, the number of correctly stored tensors whose lengths depend on the key.

        With another value of the key, these tensors would differ.
        """
        held = Counter[str]()
        for leaf in leaves(expected.tree):
            sizes = tuple(map(dim, leaf.shape))
            shape = tuple(size.value for size in sizes)
            if shape in map(self.holdings.shapes.get, spellings(leaf.name, expected.prefix)):
                keys = {symbol.key for size in sizes for symbol in size.symbols}
                held.update(dict.fromkeys(keys, leaf.number))
        return held

    def compare(self, expected: ClassTree) -> TreeComparison:
        found = _Differences(self._excused, self.holdings.counts, expected.prefix)
        for leaf in leaves(expected.tree):
            self._expected(leaf, found)
        for kind in self.holdings.kinds:
            ends = [
                (name, _step(expected, name)) for name in dict.fromkeys((kind.first, kind.last))
            ]
            lost = [(name, step) for name, step in ends if step.shape is None and not step.other]
            for name, step in lost:
                whole = len(lost) == len(ends)
                alike = -(-kind.number // len(ends)) if whole else _beyond(kind.number, name, step)
                found.unexpected(name, step, alike, whole=whole)
            if len(lost) == len(ends):
                found.odd(*lost[0])
            for name, step in ends:
                if step.shape is not None and kind.shape is not None:
                    found.shapes(name, step.shape, kind.shape, 0)
        return found.as_comparison()

    def _expected(self, leaf: Leaf, found: "_Differences") -> None:
        shapes = self.holdings.shapes
        name = next((one for one in spellings(leaf.name, found.prefix) if one in shapes), None)
        if name is None:
            found.missing(leaf)
        elif (stored := shapes[name]) is not None:
            found.shapes(leaf.name, leaf.shape, stored, leaf.number)


def _step(expected: ClassTree, stored: str) -> NamePath:
    """Follow a name, with or without the prefix; if both are unknown, return the longer path."""
    best: NamePath | None = None
    for name in spellings(stored, expected.prefix):
        step = follow(expected.tree, name)
        if step.shape is not None or step.other:
            return step
        if best is None or len(step.lists) > len(best.lists):
            best = step
    return best or NamePath(None, ())


def _beyond(number: int, name: str, step: NamePath) -> int:
    """Estimate how many of `number` similar tensors are in layers beyond the expected ones.

    Return half of them, rounded up, if the name has no number in the innermost list of layers.
    """
    for place in step.lists[-1:]:
        index = number_in_list(name, place.name)
        if index is not None:
            layers = index + 1
            return max(1, number * (layers - place.modules.value) // layers)
    return -(-number // 2)


class _Differences:
    def __init__(self, excused: frozenset[str], counts: Mapping[str, int], prefix: str) -> None:
        self._excused = excused
        self._counts = counts  # stored number of modules of each list
        self.prefix = prefix
        self._differ = self._strange = 0
        self._equations: dict[Equation, int] = {}
        self._lengths: set[tuple[int, int]] = set()
        self._numbers: set[int] = set()
        self._names: set[str] = set()

    def as_comparison(self) -> TreeComparison:
        return TreeComparison(
            self._differ,
            self._strange,
            self._equations,
            frozenset(self._lengths),
            frozenset(self._numbers),
            frozenset(self._names),
        )

    def shapes(
        self, name: str, expected: tuple[Dim | int, ...], stored: Shape, number: int
    ) -> None:
        sizes = tuple(map(dim, expected))
        if tuple(size.value for size in sizes) == stored or self._is_excused(name):
            return
        self._differ += max(1, number)
        if len(sizes) != len(stored):
            return
        for size, length in zip(sizes, stored, strict=True):
            if size.value != length:
                self._lengths.add((size.value, length))
                self._ask(size, length, max(1, number))

    def missing(self, leaf: Leaf) -> None:
        if self._is_excused(leaf.name):
            return
        self._differ += leaf.number
        self._count(leaf.lists, leaf.number)
        self._number(leaf.name)

    def unexpected(self, name: str, step: NamePath, number: int, *, whole: bool) -> None:
        """Count unexpected tensors of one kind; `whole` means that no tensor of it is expected."""
        if self._is_excused(name):
            return
        self._differ += number
        self._strange += number if whole and not step.lists else 0
        self._count(step.lists, number)
        self._number(name)

    def odd(self, name: str, step: NamePath) -> None:
        """Record the first number of an unexpected kind of names as a possible length of its lists.

        The lists may be shorter than the config declares. Layers that predict further tokens are
        numbered after those of the model.
        """
        if name_pattern(name) in self._excused:
            return
        for place in step.lists:
            number = number_in_list(name, place.name)
            if number is not None:
                self._ask(place.modules, number, 1)

    def _is_excused(self, name: str) -> bool:
        key = name_pattern(name)
        if key in self._excused:
            return True
        self._names.add(key)
        return False

    def _number(self, name: str) -> None:
        for part in name.split("."):
            number = number_of(part)
            if number is not None:
                self._numbers.update((number, number + 1))

    def _count(self, lists: tuple[ModuleList, ...], number: int) -> None:
        for place in lists:
            stored = (self._counts.get(one, 0) for one in spellings(place.name, self.prefix))
            have = next(filter(None, stored), 0)
            if have != place.modules.value:
                self._ask(place.modules, have, number)

    def _ask(self, size: Dim, wanted: int, number: int) -> None:
        equation = Equation(size, wanted)
        self._equations[equation] = self._equations.get(equation, 0) + number
