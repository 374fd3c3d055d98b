"""One key, or two, with which nothing differs any more; else those with which least does."""

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

# Trees of one search, and seconds of processor time for each of its steps, of which there are
# four at the most: a BERT's tree takes a millisecond.
_MOST_TRIED = 400
_MOST_SECONDS = 0.4

_MOST_STARTS = 6  # changes to which a second one is looked for
_MOST_SECOND = 80  # changes that are looked at beside each of them
_STRANGE = 0.5  # of what is stored: above, it is hardly this class that is stored
_FEWER_SECONDS = 0.15  # for a class that it hardly is
_MOST_IDLE = 3  # values of one key with which nothing was otherwise, before it is left alone
_FLAG_NEEDED = "expected true or false"  # of a fault
_PROBES = (1, 2, 8, 16, 64, 128, 3, 5, 12, 60, 240)

Trees = Callable[[Mapping[str, Any]], ClassTree | None]  # of the config with these values


class Solution(NamedTuple):
    """Keys with other values, and what differs all the same."""

    changes: tuple[KeyChange, ...]
    found: TreeComparison

    @property
    def differ(self) -> int:
        return self.found.differ


_Stages = Callable[[TreeComparison], Iterator[Iterable[KeyChange]]]


class KeySearch:
    """What a config would have to say; nothing is tried twice.

    `faults` is what is wrong with the config though its shapes follow: keys that it names may be
    to blame where nothing differs.
    """

    def __init__(
        self, values: Mapping[str, Any], trees: Trees, trials: Trials, faults: str = ""
    ) -> None:
        self._values = values
        self._faults = faults
        self._trees = trees
        self._trials = trials
        self._keys = every_key(values)
        self._shown: set[str] = set()  # paths of keys that formulas show
        self._held = frozenset[str]()  # keys of lengths that are stored, as formulas name them
        self._idle: Counter[str] = Counter()  # values by path with which nothing was otherwise
        self._tried: dict[tuple[tuple[str, str], ...], Solution | None] = {}
        self._until = time.thread_time() + _MOST_SECONDS

    def solutions(self) -> Iterator[Solution]:
        """All with which nothing differs, most plausible first; else what leaves least."""
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
        partly: list[Solution] = []
        for stages in (self._by_formula, self._by_trial):
            self._until = time.thread_time() + (_FEWER_SECONDS if strange else _MOST_SECONDS)
            whole: list[Solution] = []
            for stage in stages(start):
                found = list(self._judged((), stage, start))
                whole += [one for one in found if not one.differ]
                if not all(map(_is_zero, whole)):
                    break
                partly += [one for one in found if 0 < one.differ < start.differ]
            if not whole and not strange:
                whole = self._pairs(partly, stages)
            if whole:
                yield from sorted(whole, key=_plausibility)
                return
        if not strange:
            yield from _one_of_a_key(_best_first(partly))

    def _pairs(self, partly: list[Solution], stages: _Stages) -> list[Solution]:
        """The best of those that leave something, each with another key beside it."""
        self._until = time.thread_time() + _MOST_SECONDS
        for one in islice(_one_of_a_key(_best_first(partly)), _MOST_STARTS):
            known = {change.key.path for change in one.changes}
            every = chain.from_iterable(stages(one.found))
            several = islice((each for each in every if each.key.path not in known), _MOST_SECOND)
            pairs = self._judged(one.changes, several, one.found)
            whole = [pair for pair in pairs if not pair.differ]
            if whole:
                return whole
        return []

    def _by_formula(self, found: TreeComparison) -> Iterator[Iterable[KeyChange]]:
        yield solved(self._values, found)
        yield flags(self._keys)

    def _by_trial(self, found: TreeComparison) -> Iterator[Iterable[KeyChange]]:
        yield self._unset(found)
        yield items_in_proportion(self._keys, found, self._held)
        asked = self._paths(one.key for each in found.equations for one in each.size.symbols)
        hidden = [key for key in self._keys if key.path not in self._shown]
        shown = [key for key in self._keys if key.path in self._shown]
        held = self._paths(self._held)
        free = [key for key in shown if key.path not in held]
        yield chain(
            other_numbers(hidden, found),
            other_items(self._keys, found, self._held),
            other_numbers((key for key in shown if key.path in asked), found),
            (KeyChange(key, 0) for key in free if type(key.value) is int and key.value),
        )

    def _paths(self, symbols: Iterable[str]) -> set[str]:
        """The paths of keys that formulas name, as the config spells them."""
        return {key_at(self._values, key, 0).path for key in set(symbols)}

    def _unset(self, found: TreeComparison) -> Iterator[KeyChange]:
        """Keys that are null or left out, with the values that would then fit."""
        if not found.differ:
            return
        for key in self._keys:
            if key.value is None:
                yield from self._probed(key)

    def _probed(self, key: Key) -> Iterator[KeyChange]:
        """The key solved for in the formulas that it appears in once it has a value."""
        for probe in _PROBES:
            one = self._try((KeyChange(key, probe),))
            if one is None:
                continue
            for equation in one.found.equations:
                for symbol in equation.size.symbols:
                    if symbol.key == key.path:
                        several = islice(solutions(equation.size, symbol, equation.wanted), 8)
                        for value in several:
                            yield from (
                                made._replace(key=key)
                                for made in of_key(self._values, symbol, value)
                            )
            return

    def _valid_again(self, reason: str) -> Iterator[Solution]:
        """Of a config from which nothing follows: the keys that are to blame, by what fits."""
        named = set(_WORDS.findall(reason))
        blamed = [key for key in self._keys if key.path in named]
        if _FLAG_NEEDED in reason:
            several = (KeyChange(key, value) for key in blamed for value in (False, True))
        else:
            several = (each for key in blamed for each in self._other_values(key))
        found = list(self._judged((), several, _NOTHING))
        least = min((one.differ for one in found), default=0)
        yield from sorted((one for one in found if one.differ == least), key=_plausibility)

    def _other_values(self, key: Key) -> Iterator[KeyChange]:
        if isinstance(key.value, list | tuple):
            yield from other_items((key,), _NOTHING)
            for other in self._keys:  # how long the list should be
                if type(other.value) is int and other.value != len(key.value):
                    yield KeyChange(other, len(key.value))
        else:
            yield from self._probed(key)
            yield from _likely(key, self._trials.lengths)

    def _judged(
        self, before: tuple[KeyChange, ...], several: Iterable[KeyChange], start: TreeComparison
    ) -> Iterator[Solution]:
        """Try each change together with those in `before`, whose comparison is `start`."""
        seen: set[tuple[str, str]] = set()
        for one in several:
            path = one.key.path
            if one.field in seen or self._idle[path] >= _MOST_IDLE:
                continue
            seen.add(one.field)
            found = self._try((*before, one))
            if found is not None:
                is_list = isinstance(one.key.value, list)  # of which any item may be the one
                if not is_list and path not in self._shown and found.found.is_like(start):
                    self._idle[path] += 1
                yield found

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


# Keys in a sentence, with the path to them.
_WORDS = re.compile(r"[A-Za-z_][\w.]*\w")


def _is_zero(one: Solution) -> bool:
    """Whether something would not be there at all: a flag may say that better."""
    return any(type(change.value) is int and change.value == 0 for change in one.changes)


def _likely(key: Key, lengths: tuple[int, ...]) -> Iterator[KeyChange]:
    """Values of a key that no formula shows: the lengths that are stored, and what divides them."""
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


def _best_first(found: Iterable[Solution]) -> list[Solution]:
    """Those that leave least; none of what is not asked for, which lacks nothing."""
    real = (one for one in found if not _is_zero(one))
    return sorted(real, key=lambda one: (one.differ, _plausibility(one)))


def _one_of_a_key(found: Iterable[Solution]) -> Iterator[Solution]:
    seen: set[tuple[str, ...]] = set()
    for one in found:
        paths = tuple(change.key.path for change in one.changes)
        if paths not in seen:
            seen.add(paths)
            yield one


def _plausibility(one: Solution) -> tuple[Any, ...]:
    """Stated keys before defaults, heads of a usual width, then what changes least."""
    return tuple(map(max, zip(*map(_strangeness, one.changes), strict=True)))


# Widths that heads have in published models, likeliest first.
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
        return abs(log(value) - log(declared))  # of integers of any length
    if isinstance(declared, list) and isinstance(value, list):
        return float(sum(one != other for one, other in zip(declared, value, strict=False)))
    return 0.0
