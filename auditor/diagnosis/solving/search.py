"""The search for one changed key, or two, with which nothing or least differs."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from math import log
from typing import Any, NamedTuple

from auditor.analytic.blocks import symbols
from auditor.diagnosis.solving.candidates import (
    HEADS,
    KeyChange,
    flags,
    items_in_proportion,
    of_key,
    other_items,
    other_numbers,
    solved,
)
from auditor.diagnosis.solving.formulas import solutions
from auditor.diagnosis.solving.keys import Key, config_with, every_key, key_at
from auditor.diagnosis.solving.trials import ClassTree, TreeComparison, Trials
from auditor.errors import CheckpointError

# Limits of a search: trees in total, and seconds of processor time for each of its up to four
# steps. A BERT's tree takes a millisecond.
_MOST_TRIED = 400
_MOST_SECONDS = 0.4

_MOST_STARTS = 6  # single changes that are extended by a second one
_MOST_SECOND = 80  # second changes that are tried with each of them
_STRANGE = 0.5  # share of strange tensors above which the files hardly store this class
_FEWER_SECONDS = 0.15  # the limit of a step for such a class
_MOST_IDLE = 3  # values of a key without any effect before it is skipped
_FLAG_NEEDED = "expected true or false"  # part of the text of a config fault
_PROBES = (1, 2, 8, 16, 64, 128, 3, 5, 12, 60, 240)

Trees = Callable[[Mapping[str, Any]], ClassTree | None]  # the tree of the config with these values


class Solution(NamedTuple):
    """Changed keys, and the differences that remain with them."""

    changes: tuple[KeyChange, ...]
    comparison: TreeComparison

    @property
    def differ(self) -> int:
        return self.comparison.differ


_Stages = Callable[[TreeComparison], Iterator[Iterable[KeyChange]]]


class KeySearch:
    """A search for config changes that close differences; no change is tried twice.

    `faults` describes faults of a config that implies shapes all the same: if nothing differs, the
    keys that it names may be wrong.
    """

    def __init__(
        self, values: Mapping[str, Any], trees: Trees, trials: Trials, faults: str = ""
    ) -> None:
        self._values = values
        self._faults = faults
        self._trees = trees
        self._trials = trials
        self._keys = every_key(values)
        self._shown: set[str] = set()  # paths of keys in the formulas
        self._held = frozenset[str]()  # keys of lengths stored as expected, as formulas name them
        self._idle: Counter[str] = Counter()  # number of values without effect, by path
        self._tried: dict[tuple[tuple[str, str], ...], Solution | None] = {}
        self._until = time.thread_time() + _MOST_SECONDS

    def solutions(self) -> Iterator[Solution]:
        """Yield all solutions without differences, most plausible first; else those with fewest."""
        try:
            as_it_is = self._tree(())
        except CheckpointError as error:
            yield from self._valid_again(str(error))
            return
        if as_it_is is None:
            return
        self._trials.excuse(as_it_is)
        self._shown = self._paths(one.key for one in symbols(as_it_is.tree))
        self._held = self._trials.held_keys(as_it_is)
        start = self._trials.compare(as_it_is)
        if not start.differ:
            yield from self._valid_again(self._faults)
            return
        strange = start.strange > _STRANGE * self._trials.stored
        partial: list[Solution] = []
        for stages in (self._by_formula, self._by_trial):
            self._until = time.thread_time() + (_FEWER_SECONDS if strange else _MOST_SECONDS)
            complete: list[Solution] = []
            for stage in stages(start):
                results = list(self._judged((), stage, start))
                complete += [one for one in results if not one.differ]
                if not all(map(_is_zero, complete)):
                    break
                partial += [one for one in results if 0 < one.differ < start.differ]
            if not complete and not strange:
                complete = self._pairs(partial, stages)
            if complete:
                yield from sorted(complete, key=_plausibility)
                return
        if not strange:
            yield from _one_of_a_key(_best_first(partial))

    def _pairs(self, partial: list[Solution], stages: _Stages) -> list[Solution]:
        """Extend the best partial solutions by another key; return those without differences."""
        self._until = time.thread_time() + _MOST_SECONDS
        for start in islice(_one_of_a_key(_best_first(partial)), _MOST_STARTS):
            paths = {change.key.path for change in start.changes}
            changes = chain.from_iterable(stages(start.comparison))
            others = islice((one for one in changes if one.key.path not in paths), _MOST_SECOND)
            pairs = self._judged(start.changes, others, start.comparison)
            complete = [pair for pair in pairs if not pair.differ]
            if complete:
                return complete
        return []

    def _by_formula(self, comparison: TreeComparison) -> Iterator[Iterable[KeyChange]]:
        yield solved(self._values, comparison)
        yield flags(self._keys)

    def _by_trial(self, comparison: TreeComparison) -> Iterator[Iterable[KeyChange]]:
        yield self._unset(comparison)
        yield items_in_proportion(self._keys, comparison, self._held)
        wanted = self._paths(
            symbol.key for equation in comparison.equations for symbol in equation.size.symbols
        )
        hidden = [key for key in self._keys if key.path not in self._shown]
        shown = [key for key in self._keys if key.path in self._shown]
        held = self._paths(self._held)
        free = [key for key in shown if key.path not in held]
        yield chain(
            other_numbers(hidden, comparison),
            other_items(self._keys, comparison, self._held),
            other_numbers((key for key in shown if key.path in wanted), comparison),
            (KeyChange(key, 0) for key in free if type(key.value) is int and key.value),
        )

    def _paths(self, symbols: Iterable[str]) -> set[str]:
        """Return the paths of keys in formulas, as the config spells them."""
        return {key_at(self._values, key, 0).path for key in set(symbols)}

    def _unset(self, comparison: TreeComparison) -> Iterator[KeyChange]:
        """Yield values that would fit for the keys that are null or left out."""
        if not comparison.differ:
            return
        for key in self._keys:
            if key.value is None:
                yield from self._probed(key)

    def _probed(self, key: Key) -> Iterator[KeyChange]:
        """Yield values solved from the formulas that contain the key once it has a value."""
        for probe in _PROBES:
            solution = self._try((KeyChange(key, probe),))
            if solution is None:
                continue
            for equation in solution.comparison.equations:
                for symbol in equation.size.symbols:
                    if symbol.key == key.path:
                        for value in islice(solutions(equation.size, symbol, equation.wanted), 8):
                            yield from (
                                change._replace(key=key)
                                for change in of_key(self._values, symbol, value)
                            )
            return

    def _valid_again(self, reason: str) -> Iterator[Solution]:
        """Yield the best changes of the keys that a fault of the config names."""
        named = set(_WORDS.findall(reason))
        wrong = [key for key in self._keys if key.path in named]
        if _FLAG_NEEDED in reason:
            changes = (KeyChange(key, value) for key in wrong for value in (False, True))
        else:
            changes = (change for key in wrong for change in self._other_values(key))
        results = list(self._judged((), changes, _NOTHING))
        least = min((one.differ for one in results), default=0)
        yield from sorted((one for one in results if one.differ == least), key=_plausibility)

    def _other_values(self, key: Key) -> Iterator[KeyChange]:
        if isinstance(key.value, list | tuple):
            yield from other_items((key,), _NOTHING)
            for other in self._keys:  # keys that may give the length of the list
                if type(other.value) is int and other.value != len(key.value):
                    yield KeyChange(other, len(key.value))
        else:
            yield from self._probed(key)
            yield from _likely(key, self._trials.lengths)

    def _judged(
        self, before: tuple[KeyChange, ...], changes: Iterable[KeyChange], start: TreeComparison
    ) -> Iterator[Solution]:
        """Try each change together with those in `before`, whose comparison is `start`."""
        seen: set[tuple[str, str]] = set()
        for change in changes:
            path = change.key.path
            if change.field in seen or self._idle[path] >= _MOST_IDLE:
                continue
            seen.add(change.field)
            solution = self._try((*before, change))
            if solution is not None:
                is_list = isinstance(change.key.value, list)  # another item may have an effect
                if not is_list and path not in self._shown and solution.comparison.is_like(start):
                    self._idle[path] += 1
                yield solution

    def _try(self, changes: tuple[KeyChange, ...]) -> Solution | None:
        key = tuple(sorted(change.field for change in changes))
        if key in self._tried:
            return self._tried[key]
        if len(self._tried) >= _MOST_TRIED or time.thread_time() > self._until:
            return None
        self._tried[key] = None
        try:
            tree = self._tree(changes)
        except CheckpointError:
            return None
        if tree is not None:
            self._tried[key] = Solution(changes, self._trials.compare(tree))
        return self._tried[key]

    def _tree(self, changes: tuple[KeyChange, ...]) -> ClassTree | None:
        values: dict[str, Any] = {}
        for change in changes:
            values.update(config_with(self._values, change.key.path, change.value))
        return self._trees(values)


_NOTHING = TreeComparison(1, 0, {}, frozenset(), frozenset(), frozenset())


# Words of a sentence that may be dotted paths of keys.
_WORDS = re.compile(r"[A-Za-z_][\w.]*\w")


def _is_zero(one: Solution) -> bool:
    """Whether a change sets a number to 0; a flag may explain what that removes better."""
    return any(type(change.value) is int and change.value == 0 for change in one.changes)


def _likely(key: Key, lengths: tuple[int, ...]) -> Iterator[KeyChange]:
    """Yield values of a key that no formula contains: stored lengths and divisors of the width."""
    if type(key.value) is not int:
        return
    width = lengths[0] if lengths else 0
    divisors = [value for value in range(1, min(width, 256) + 1) if not width % value]
    divisors.sort(key=lambda value: abs(value - key.value))
    for value in divisors[:16]:
        yield KeyChange(key, value, width // value)
    for value in lengths[:32]:
        yield KeyChange(key, value)
    for step in (1, -1, 2, -2):
        yield KeyChange(key, key.value + step)


def _best_first(candidates: Iterable[Solution]) -> list[Solution]:
    """Sort candidates by remaining differences; leave out those that set a number to 0.

    A model without a part lacks nothing of it, so that 0 always looks good.
    """
    nonzero = (one for one in candidates if not _is_zero(one))
    return sorted(nonzero, key=lambda one: (one.differ, _plausibility(one)))


def _one_of_a_key(candidates: Iterable[Solution]) -> Iterator[Solution]:
    seen: set[tuple[str, ...]] = set()
    for one in candidates:
        paths = tuple(change.key.path for change in one.changes)
        if paths not in seen:
            seen.add(paths)
            yield one


def _plausibility(one: Solution) -> tuple[Any, ...]:
    """Return a sort key: stated keys first, usual widths of heads, then the smallest change."""
    return tuple(map(max, zip(*map(_strangeness, one.changes), strict=True)))


# Widths of heads in published models, most frequent first.
_USUAL = (64, 128, 32, 80, 96, 256, 16, 8)


def _strangeness(change: KeyChange) -> tuple[int, int, int, int, int, float]:
    key, value = change.key, change.value
    zero = type(value) is int and value == 0
    place = _USUAL.index(change.share) if change.share in _USUAL else len(_USUAL)
    odd = bool(change.share) and place > 1
    heads = key.path.rpartition(".")[2] in HEADS
    by_width = place if change.share else 0
    return (
        int(zero),
        int(key.default),
        int(odd),
        int(heads),
        by_width,
        _distance(key.value, value),
    )


def _distance(declared: Any, value: Any) -> float:
    if type(declared) is int and type(value) is int and declared > 0 and value > 0:
        return abs(log(value) - log(declared))  # log works for integers of any length
    if isinstance(declared, list) and isinstance(value, list):
        return float(sum(one != other for one, other in zip(declared, value, strict=False)))
    return 0.0
