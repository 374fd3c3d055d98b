"""The search for values of all config keys at once, with which the stored tensors are expected.

Every expected length is a polynomial in config keys, and the stored length is its value. A plain
length is a single key: all such keys are set at once, and a new depth resizes its lists. Then
single changes follow; each step takes the change that leaves the fewest differing tensors: a
product solved for one of its keys, a flag, a word, a key set to null, or a list with the type of
each layer.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NamedTuple

from auditor.analytic.activations import LEARNED
from auditor.analytic.blocks import symbols
from auditor.analytic.config_classes import library, words_of_any_class
from auditor.analytic.config_keys import (
    NULL,
    Key,
    beside,
    changed,
    every_key,
    key_at,
    name_of,
    parent_of,
    stated_keys,
    value_at,
)
from auditor.analytic.outline import ClassTree
from auditor.diagnosis.solving import limits
from auditor.diagnosis.solving.candidates import (
    KeyChange,
    flags,
    in_proportion,
    likely,
    other_numbers,
    plain_values,
    plausibility,
    solved,
)
from auditor.diagnosis.solving.layer_lists import empty_lists, fitted, layer_lists, resized
from auditor.diagnosis.solving.size_equations import determined_sizes
from auditor.diagnosis.solving.size_keys import (
    HEAD_DIM,
    USUAL_HEADS,
    WIDTHS,
    heads_of_the_same_width,
    is_heads,
)
from auditor.diagnosis.solving.trials import TreeComparison, Trees, Trials
from auditor.errors import CheckpointError

_PROBES = (1, 2, 8, 64)
_WORD = "?"  # a word that no key has as its value
_WORDS = re.compile(r"[A-Za-z_][\w.]*\w")  # words of a sentence that may be paths of keys
_QUOTED = re.compile(r'"([^"?]+)"|\'([^\'?]+)\'')
_FLAG_NEEDED = "expected true or false"  # part of the text of a config fault


class JointSolution(NamedTuple):
    """Changed config values, by dotted path, and the differences that remain with them."""

    values: Mapping[str, Any]
    remains: TreeComparison


def solve(  # noqa: PLR0913 - what is compared, and two limits
    config: Mapping[str, Any],
    trees: Trees,
    trials: Trials,
    *,
    faults: str = "",
    most_trees: int = limits.TREES,
    seconds: float = limits.SECONDS,
) -> tuple[JointSolution, ...]:
    """Return the values that leave the fewest differences, and alternatives that leave as few.

    `faults` describes faults of a config that implies shapes nevertheless: if nothing differs, the
    keys that it names may be wrong. Return () if the config implies no tensors, or mostly
    other tensors than those stored.
    """
    return _Search(config, trees, trials, most_trees, seconds).solutions(faults)


def other_words(trees: Trees, values: Mapping[str, Any], path: str) -> list[str]:
    """Return the words that a key may have."""
    words = valid_words(trees, {**values, path: _WORD})
    return words or sorted(words_of_any_class(name_of(path)))


def valid_words(trees: Trees, values: Mapping[str, Any]) -> list[str]:
    """Return the valid words that the error message about an invalid word lists."""
    try:
        trees(values)
    except CheckpointError as error:
        return [one or other for one, other in _QUOTED.findall(str(error))]
    return []


class _Search:
    def __init__(
        self,
        config: Mapping[str, Any],
        trees: Trees,
        trials: Trials,
        most_trees: int,
        seconds: float,
    ) -> None:
        self._config = config
        self._trees = trees
        self._trials = trials
        self._left = most_trees
        self._until = time.thread_time() + seconds
        self._known: dict[str, JointSolution | None] = {}  # values as text -> their solution

    def solutions(self, faults: str) -> tuple[JointSolution, ...]:
        try:
            as_it_is = self._trees({})
        except CheckpointError as error:
            return self._repaired(str(error))
        if as_it_is is None:
            return ()
        start = JointSolution({}, self._trials.compare(as_it_is))
        if not start.remains.differ:
            return self._repaired(faults) or (start,)
        strange = start.remains.strange / max(1, len(self._trials.holdings.shapes))
        is_strange = strange > limits.OTHER_CLASS
        if is_strange:
            self._until = min(self._until, time.thread_time() + limits.OTHER_CLASS_SECONDS)
        best = start if strange > limits.NO_CLASS else self._reduced(self._descended(start))
        if is_strange and best.remains.differ:
            return ()
        has_list = any(isinstance(value, list) for value in best.values.values())
        few = 1 if has_list else limits.FEW
        by_length = plain_values(self._config, start.remains).keys() & best.values.keys()
        is_few = len(best.values) <= few or not by_length or self._drops_layers(best)
        if is_few and not best.remains.differ:
            single = [best] if len(best.values) == 1 else []
            singles = [*single, *self._singles(start)]
            complete = [one for one in singles if not self._drops_layers(one)]
            return self._by_plausibility(complete or singles) or (best,)
        return (best,)

    def _with(self, values: Mapping[str, Any]) -> JointSolution | None:
        """Return the solution with these values; None if they are invalid or a limit is reached."""
        values = {
            path: one
            for path, one in values.items()
            if one is None or repr(one) != repr(value_at(self._config, path))  # 0 is not False
        }
        text = repr(sorted(values.items()))
        if text not in self._known:
            if self._is_over():
                return None
            self._left -= 1
            tree = self._tree(values)
            self._known[text] = tree and JointSolution(values, self._trials.compare(tree))
        return self._known[text]

    def _is_over(self) -> bool:
        return self._left <= 0 or time.thread_time() > self._until

    def _tree(self, values: Mapping[str, Any]) -> ClassTree | None:
        with suppress(CheckpointError):
            return self._trees(values)
        return None

    def _changed(self, now: JointSolution, change: KeyChange) -> JointSolution | None:
        return self._with({**now.values, change.key.path: change.value})

    # --- the search -------------------------------------------------------------------------------

    def _descended(self, now: JointSolution) -> JointSolution:
        """Apply plain lengths and single changes in turn while they reduce the differences."""
        best, tried, votes = now, {repr(now.values)}, dict[str, int]()
        for _ in range(limits.ROUNDS):
            if not best.remains.differ:
                break
            after = self._plain(now, votes)
            if after is None or repr(after.values) in tried:
                after = self._single(now)
            if after is None and now is not best:
                after = self._single(best)
            if after is None:
                break
            tried.add(repr(after.values))
            now = after
            best = min(best, now, key=lambda one: one.remains.differ)
        if any(isinstance(value, list) for value in best.values.values()):
            # A comparison sees only the first and last layer of each kind.
            for fit in self._lists_fitted(best):
                if fit is not None and fit.remains.differ <= best.remains.differ:
                    best = fit
        return best

    def _plain(self, now: JointSolution, votes: dict[str, int]) -> JointSolution | None:
        """Return the solution with each key set that a plain length gives; None if no key changes.

        `votes` has, for each key, the number of tensors whose lengths gave its present value. A key
        changes only if more tensors give the new value than gave or confirm the present one.
        """
        config = changed(self._config, now.values)
        plain = plain_values(config, now.remains)
        held = self._held_paths(now) if plain else {}
        changes: dict[str, Any] = {}
        for path, (value, number) in plain.items():
            if number > max(votes.get(path, 0), held.get(path, 0)):
                votes[path] = number
                changes[path] = value
        if not changes:
            return None
        heads = dict(heads_of_the_same_width(config, changes))
        lists = dict(resized(config, changes))
        found = (
            self._with({**now.values, **changes, **more})
            for more in ({**heads, **lists}, lists, heads, {})
        )
        return next(filter(None, found), None)

    def _held_paths(self, now: JointSolution) -> dict[str, int]:
        """Return, by path, how many stored tensors agree with each key's present value."""
        tree, config = self._tree(now.values), changed(self._config, now.values)
        held = self._trials.held_keys(tree) if tree else {}
        return {key_at(config, symbol, 0).path: number for symbol, number in held.items()}

    def _single(self, now: JointSolution) -> JointSolution | None:
        """Return the best solution with one more change; None if no change removes a difference.

        Of solutions with equally many differences, one that keeps the expected tensors is better.
        """

        def order(one: JointSolution) -> tuple[Any, ...]:
            lost = len(one.remains.names - now.remains.names)
            return one.remains.differ, lost, self._plausibility(one)

        found: list[JointSolution] = []
        for candidates in (self._by_formula, self._stated, self._by_trial):
            better = [one for one in candidates(now) if one.remains.differ < now.remains.differ]
            is_whole = any(not one.remains.differ for one in better)
            found = better if is_whole else found or better
            if is_whole or (found and len(now.remains.names) > limits.FEW):
                break
        return min(found, key=order, default=None)

    def _singles(self, start: JointSolution) -> list[JointSolution]:
        """Return the single changes after which no tensor differs.

        Groups of candidates are tried in order, until one contains a change that keeps all stored
        layers.
        """
        found: list[JointSolution] = []
        for candidates in (self._products, self._by_formula, self._stated, self._by_trial):
            found += [one for one in candidates(start) if not one.remains.differ]
            if any(not self._drops_layers(one) for one in found):
                break
        return found

    def _drops_layers(self, one: JointSolution) -> bool:
        """Whether a depth is smaller than declared although all declared layers are stored."""
        counts = self._trials.holdings.counts.values()
        depths = ((path, value) for path, value in one.values.items() if path.endswith("layers"))
        return any(
            type(value) is type(declared := value_at(self._config, path)) is int
            and declared in counts
            and value < declared
            for path, value in depths
        )

    # --- single changes ---------------------------------------------------------------------------

    def _products(
        self, now: JointSolution, most: int = limits.CANDIDATES
    ) -> Iterator[JointSolution]:
        """Yield solutions in which one key of a size formula is set to fit the stored length."""
        changes = solved(changed(self._config, now.values), now.remains)
        found = (self._changed(now, change) for change in islice(changes, most))
        yield from filter(None, found)

    def _by_formula(self, now: JointSolution) -> Iterator[JointSolution]:
        """Yield solutions with a product solved, a flag or word changed, or a list fitted."""
        yield from self._products(now)
        yield from filter(None, (self._changed(now, change) for change in self._choices(now)))
        yield from filter(None, (*self._of_all_axes(now), *self._lists_fitted(now)))

    def _choices(self, now: JointSolution) -> Iterator[KeyChange]:
        """Yield other values of flags, and of keys whose value is one of a few words."""
        keys = every_key(changed(self._config, now.values))
        yield from flags(keys)
        alike = library().activations - LEARNED.keys()  # none stores a tensor
        for key in keys:
            if isinstance(key.value, str) and not self._is_over():
                # "gelu" stores what "relu" stores; "gated-gelu" does not.
                same = alike if key.value in alike else {key.value}
                words = other_words(self._trees, now.values, key.path)
                yield from (KeyChange(key, word) for word in words if word not in same)
        yield from (KeyChange(key, value=True) for key in keys if key.value is None)

    def _of_all_axes(self, now: JointSolution) -> Iterator[JointSolution | None]:
        """Yield solutions with every key that the stored axes determine together.

        If no axis determines the width of a differing head, usual widths are assumed in turn.
        """
        tree, config = self._tree(now.values), changed(self._config, now.values)
        if tree is None:
            return
        keys = {symbol.key for one in now.remains.equations for symbol in one.size.symbols}
        widths = sorted(key for key in keys if key.endswith(HEAD_DIM))
        for given in ({}, *({key: width} for key in widths for width in USUAL_HEADS)):
            sizes = determined_sizes(self._trials.holdings.equations(tree), given)
            others = ((symbol, value) for symbol, value in sizes.items() if value)
            values = given | {one.key: value for one, value in others if value != one.value}
            if len(values) > 1:
                plain = (key for key in values if "[" not in key)
                paths = {key_at(config, key, 0).path: values[key] for key in plain}
                yield self._with({**now.values, **paths})

    def _lists_fitted(self, now: JointSolution) -> Iterator[JointSolution | None]:
        """Yield solutions with a list whose items fit the tensors that each layer stores."""
        if len(self._trials.holdings.shapes) > limits.NAMES:
            return
        config = changed(self._config, now.values)
        for one in (*layer_lists(config), *empty_lists(config)):
            items = value_at(config, one.path) or []
            words = valid_words(self._trees, {**now.values, one.path: [_WORD] * len(items)})
            fit = fitted(
                config,
                one,
                words if items and isinstance(items[0], str) else (),
                lambda values: self._tree({**now.values, **values}),
                self._trials.holdings,
            )
            if fit is not None and fit != items:
                yield self._with({**now.values, one.path: fit})

    def _stated(self, now: JointSolution) -> Iterator[JointSolution]:
        """Yield solutions that set a key which the config omits or sets to null.

        A trial value makes the key appear in the formulas, which are then solved for it.
        """
        shown = self._shown(now)
        for key in every_key(changed(self._config, now.values)):
            is_stated = not (key.default or key.value is None)
            if is_stated or isinstance(key.value, bool | str | list) or key.path in shown:
                continue
            probes = (key.value, *_PROBES) if key.value else _PROBES
            tried = (self._with({**now.values, key.path: probe}) for probe in probes)
            stated = next(filter(None, tried), None)
            if stated and key.path in self._shown(stated):
                yield from self._products(stated)
                if plain := self._plain(stated, {}):
                    for one in (plain, *self._products(plain, limits.SOLVED)):
                        yield one if one.remains.differ else self._reduced(one)

    def _shown(self, now: JointSolution) -> frozenset[str]:
        """Return the paths of the keys in the formulas."""
        tree, config = self._tree(now.values), changed(self._config, now.values)
        keys = {symbol.key for symbol in symbols(tree.tree)} if tree else ()
        return frozenset(key_at(config, key, 0).path for key in keys)

    def _by_trial(self, now: JointSolution) -> Iterator[JointSolution]:
        """Yield solutions with likely values of keys that no correctly stored length contains."""
        config, remains = changed(self._config, now.values), now.remains
        held, shown = self._held_paths(now), self._shown(now)
        free = [key for key in every_key(config) if key.path not in held]
        numbers = [key for key in free if type(key.value) is int and key.path in shown]
        candidates = chain(
            in_proportion(free, remains),
            (KeyChange(key, value) for key in numbers for value in _without(config, key)),
            other_numbers(free, remains),
            (KeyChange(key, 0) for key in numbers),
        )
        others = (change for change in candidates if change.value != change.key.value)
        some = islice(others, 3 * limits.CANDIDATES)
        once = {(change.key.path, str(change.value)): change for change in some}
        for change in once.values():
            after = self._changed(now, change)
            if after is not None and (change.value != 0 or not after.remains.differ):
                yield after

    # --- the order of solutions -------------------------------------------------------------------

    def _order(self, one: JointSolution) -> tuple[Any, ...]:
        return one.remains.differ, self._plausibility(one)

    def _plausibility(self, one: JointSolution) -> tuple[Any, ...]:
        keys = stated_keys(one.values, self._config)
        return plausibility(
            changed(self._config, one.values),
            (KeyChange(keys[path], value) for path, value in one.values.items()),
        )

    def _by_plausibility(self, found: Iterable[JointSolution]) -> tuple[JointSolution, ...]:
        different = {repr(sorted(one.values.items())): one for one in found}
        return tuple(sorted(different.values(), key=self._plausibility))

    def _reduced(self, best: JointSolution) -> JointSolution:
        """Return the solution without the changes that are not needed."""
        self._left += len(best.values)
        config = changed(self._config, best.values)
        lists = {one.path for one in layer_lists(config)}
        for path in sorted(best.values):
            if path in lists or self._is_divisor(path, config):
                continue
            others = {other: value for other, value in best.values.items() if other != path}
            without = self._with(others) if others else None
            if without is not None and without.remains.differ <= best.remains.differ:
                best = without
        return best

    def _is_divisor(self, path: str, config: Mapping[str, Any]) -> bool:
        """Whether the key counts heads, and its declared number does not divide the new width."""
        heads = stated_keys([path], self._config)[path].value
        if not is_heads(path) or type(heads) is not int or not heads:
            return False
        near = beside(every_key(config), parent_of(path))
        widths = (key.value for key in near if key.path.endswith(WIDTHS))
        return any(type(width) is int and width % heads for width in widths)

    # --- a config that implies no tensors ---------------------------------------------------------

    def _repaired(self, reason: str) -> tuple[JointSolution, ...]:
        """Return the best solutions that change a key which the error message `reason` names."""
        named = set(_WORDS.findall(reason))
        wrong = [key for key in every_key(self._config) if key.path in named]
        nothing = JointSolution({}, NOTHING)
        changes = (change for key in wrong for change in self._other_values(key, reason))
        found = list(filter(None, (self._changed(nothing, change) for change in changes)))
        found.sort(key=self._order)
        if found and found[0].remains.differ:
            found = [self._reduced(self._descended(one)) for one in found[: limits.STARTS]]
        least = min((one.remains.differ for one in found), default=0)
        return self._by_plausibility(one for one in found if one.remains.differ == least)

    def _other_values(self, key: Key, reason: str) -> Iterator[KeyChange]:
        if _FLAG_NEEDED in reason:
            yield from (KeyChange(key, value) for value in (False, True))
        elif isinstance(key.value, list | tuple):
            for other in every_key(self._config):  # keys that may give the length of the list
                if type(other.value) is int and other.value != len(key.value):
                    yield KeyChange(other, len(key.value))
        elif type(key.value) is int:
            yield from likely(key, self._trials.holdings.lengths)
        else:
            spelt = str(key.value)
            number = [int(spelt)] if spelt.isascii() and spelt.isdecimal() else []
            for value in (*number, *self._trials.holdings.lengths[:32], *_PROBES):
                yield KeyChange(key, value)


def _without(config: Mapping[str, Any], key: Key) -> Iterator[Any]:
    """Yield the values that remove the modules a key counts: null, or None (remove the key)."""
    yield NULL
    absent = changed(config, {key.path: None})
    if not key.default and key.path not in {one.path for one in every_key(absent)}:
        yield None


NOTHING = TreeComparison(1, 0, {}, frozenset(), frozenset(), frozenset())
