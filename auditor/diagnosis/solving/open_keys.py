"""The keys of a solved config that no shape determines, and other values that fit as well.

A width of `H*d` rows leaves the number of heads open; no shape shows which layers attend to all
tokens, or the width of feed-forward layers that no layer has. If many keys differ, open keys are
named without a value; if one or two do, the values that fit are listed.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from auditor.analytic.blocks import symbols
from auditor.analytic.config_classes import other_activations
from auditor.analytic.config_keys import (
    NULL,
    Key,
    beside,
    changed,
    every_key,
    indexed,
    key_at,
    name_of,
    parent_of,
    value_at,
)
from auditor.analytic.dims import dim
from auditor.analytic.outline import ClassTree, sizes_of
from auditor.bounded.json_text import is_identical
from auditor.diagnosis.solving import candidates, limits
from auditor.diagnosis.solving.candidates import KeyChange, flags
from auditor.diagnosis.solving.joint import other_words
from auditor.diagnosis.solving.layer_lists import LayerList, layer_lists
from auditor.diagnosis.solving.size_equations import determined_sizes, size_with
from auditor.diagnosis.solving.size_keys import (
    DEPTH,
    HEAD_DIM,
    HEAD_SIZES,
    is_heads,
    is_width,
    width_of_heads,
)
from auditor.diagnosis.solving.trials import TreeComparison, Trees, Trials
from auditor.errors import CheckpointError

_SIZES = ("size", "dim", "rank", "inner")  # ends of keys that are widths
_FACTORS = (*range(1, 11), 12, 16, 32, 64)  # other numbers are the solved one times n/m of these


def open_keys(
    config: Mapping[str, Any],
    values: Mapping[str, Any],
    trees: Trees,
    trials: Trials,
) -> dict[str, Any]:
    """Return the keys related to the solved values that no shape determines, with declared values.

    These are values that the stored lengths do not determine, numbers of heads next to a changed
    width, lists whose items no tensor shows, and keys that repeat a changed key.
    """
    solved = _Solved(config, values, trees, trials)
    now, tree = changed(config, values), trees(values)
    if tree is None:
        return {}
    known = {
        key_at(now, symbol.key, symbol.value).path
        for symbol, value in determined_sizes(trials.holdings.equations(tree), {}).items()
        if value == symbol.value
    }
    too_wide = {path for path, value in values.items() if _are_too_wide(now, path, value)}
    known -= too_wide
    in_formulas = {indexed(symbol.key)[0] for symbol in symbols(tree.tree)}
    shown = in_formulas | {key_at(now, key, 0).path for key in in_formulas}  # and other spellings
    found = set(_open_values(solved, now, tree, known, shown))
    found.update(_factors_beside(found, now, tree, known))
    found.update(_lists_without_tensors(solved, now))
    keys = every_key(config, shaping=False)
    declared = {key.path: key.value for key in keys}
    for path in values:
        found.update(_heads_beside(keys, path, known, values))
        found.update(_repeated(keys, path, declared.get(path), {*values, *shown}))
    stated = (key.path for key in keys if not key.default and key.path not in values)
    found.update(path for path in stated if key_at(config, path, None).path in values)
    if len(values) == 1:
        found -= values.keys()  # a single changed key counts as solved
    else:
        found.update(_with_another_flag(solved, limits.FLAG_KEYS if too_wide else 1))
        if "model_type" in config:  # else the keys that the code reads are not known
            found.update(_unseen_widths(every_key(config), {*values, *shown}))
    return {path: declared.get(path, value_at(config, path)) for path in sorted(found)}


def other_solutions(
    config: Mapping[str, Any],
    values: Mapping[str, Any],
    trees: Trees,
    trials: Trials,
    most_trees: int = limits.OTHER_TREES,
) -> tuple[dict[str, Any], ...]:
    """Return solutions with other values of the solved keys that are as good; at most twelve.

    Keys that share a formula with a solved key change with it: 3 heads of 32 rows store what 6
    heads of 16 rows store. A width of heads is right if the config states it and it is not solved
    for. The solutions nearest to `values` come first.
    """
    solved = _Solved(config, values, trees, trials)
    tree, best = trees(values), solved.remains({})
    if tree is None or best is None:
        return ()
    found: dict[str, dict[str, Any]] = {}
    for one in islice(_others(solved, tree), most_trees):
        remains = solved.remains(one)
        if remains is not None and remains.differ <= best.differ:
            found.setdefault(repr(sorted(one.items())), {**values, **one})
        if len(found) == limits.OTHERS:
            break
    return tuple(found.values())


def _others(solved: "_Solved", tree: ClassTree) -> Iterator[Mapping[str, Any]]:
    """Yield changes of solved keys with which every formula of a stored length still holds."""
    until = time.thread_time() + limits.FLAG_SECONDS
    now = changed(solved.config, solved.values)
    lengths = {one for one in solved.trials.holdings.equations(tree) if one[0].value == one[1]}
    symbols_by_path = {
        key_at(now, one.key, 0).path: one for size, _ in lengths for one in size.symbols
    }
    stated = {key.path for key in every_key(solved.config, shaping=False) if not key.default}
    right = {
        one.key: one.value
        for path, one in symbols_by_path.items()
        if name_of(path) in HEAD_SIZES and path in stated.difference(solved.values)
    }
    known = determined_sizes(lengths, right)
    settled = right | {one.key: size for one, size in known.items()}
    lengths = {one for one in lengths if any(key.key not in settled for key in one[0].symbols)}
    for path, value in solved.values.items():
        symbol = symbols_by_path.get(path)
        if isinstance(value, str):
            yield from _other_words(solved, path)
        if type(value) is not int or symbol in known:
            continue
        for other in _in_proportion(value):
            if symbol is None:
                yield {path: other}
            elif time.thread_time() < until:
                given = determined_sizes(lengths, {**settled, symbol.key: other})
                for sizes in ({symbol: other}, {**given, symbol: other}):
                    if all(size_with(size, sizes) == length for size, length in lengths):
                        pairs = symbols_by_path.items()
                        new = {at: sizes.get(one, one.value) for at, one in pairs}
                        yield {at: new[at] for at, one in pairs if new[at] != one.value}


def _in_proportion(value: int) -> list[int]:
    """Return the numbers next to a value and in proportion to it, the nearest first."""
    if value <= 0:
        return []
    others = {value * n // m for n in _FACTORS for m in _FACTORS if not value * n % m}
    others = (others | {value + 1, value - 1}) - {value, 0}
    return sorted(others, key=lambda one: abs(math.log(one / value)))


class _Solved(NamedTuple):
    """A solved config, and what its tensors are compared with."""

    config: Mapping[str, Any]  # as declared
    values: Mapping[str, Any]
    trees: Trees
    trials: Trials

    def remains(self, changes: Mapping[str, Any]) -> TreeComparison | None:
        """Return the differences after further changes; None if they make an invalid config."""
        with suppress(CheckpointError):
            if tree := self.trees({**self.values, **changes}):
                return self.trials.compare(tree)
        return None

    def fits(self, changes: Mapping[str, Any]) -> bool | None:
        """Whether no tensor differs after further changes; None if the config is invalid."""
        remains = self.remains(changes)
        return None if remains is None else not remains.differ


def ids_beyond(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token ids that fit into the declared vocabulary and not into the solved one."""
    keys = every_key(changed(config, values), shaping=False)
    sizes = {
        parent_of(path): (size, value_at(config, path))
        for path, size in values.items()
        if name_of(path) == "vocab_size" and type(size) is int
    }
    ids = [key for key in keys if key.path.endswith("_token_id") and type(key.value) is int]
    return {
        key.path: key.value
        for key in ids
        for size, declared in [sizes.get(key.parent, (math.inf, 0))]
        if size <= key.value < (declared if type(declared) is int else math.inf)
    }


def _open_values(
    solved: _Solved, now: Mapping[str, Any], tree: ClassTree, known: set[str], shown: set[str]
) -> Iterator[str]:
    """Yield the solved values in place of which others would fit as well."""
    plain = {
        key_at(now, symbol.key, 0).path
        for size in sizes_of(tree.tree)
        for symbol in size.symbols
        if size == dim(symbol)
    }
    for path, value in solved.values.items():
        is_unknown = type(value) in {int, float} and path in shown and path not in known
        is_fraction = type(value) is float and path not in plain
        others = _other_words(solved, path) if isinstance(value, str) else ()
        near = _neighbours(solved.values, path) if path not in plain else ()
        if is_unknown or is_fraction or any(map(solved.fits, (*others, *near))):
            yield path


def _factors_beside(
    found: set[str], now: Mapping[str, Any], tree: ClassTree, known: set[str]
) -> Iterator[str]:
    """Yield the other unknown keys of each length that contains a key without a known value.

    If `G*S` is stored and neither `G` nor `S` is determined, both may differ.
    """
    for size in sizes_of(tree.tree):
        paths = {key_at(now, symbol.key, 0).path for symbol in size.symbols} - known
        if not paths.isdisjoint(found):
            yield from paths


def _lists_without_tensors(solved: _Solved, now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lists by layer of which no tensor shows the items.

    A stated list with an item for each stored layer needs no change.
    """
    for one in layer_lists(now):
        is_complete = len(value_at(solved.config, one.path) or ()) == one.layers
        is_changed = one.path in solved.values or (one.depth in solved.values and not is_complete)
        others = ({one.path: items} for items in _other_items(now, one))
        if is_changed and all(solved.fits(other) is not False for other in others):
            yield one.path


def _neighbours(values: Mapping[str, Any], path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the next larger and smaller value of a key.

    An image size has no such neighbour unless the patch size is solved too: the number of patches
    has to be a whole one.
    """
    is_image = path.endswith("image_size") and not any("patch" in other for other in values)
    if type(values[path]) is int and not is_image:
        yield from ({path: values[path] + step} for step in (1, -1))


def _other_words(solved: _Solved, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield other words of a key: no shape tells "gated-gelu" from "gated-silu"."""
    own = solved.values[path]
    words = {*other_words(solved.trees, solved.values, path), *other_activations(own)}
    yield from ({path: word} for word in sorted(words - {own}))


def _other_items(config: Mapping[str, Any], one: LayerList) -> list[list[Any]]:
    """Return other items of a list by layer; they fit as well if no tensor shows the items."""
    items, depth = value_at(config, one.path), one.layers
    if len(items) == depth:
        return [[item] * depth for item in {repr(item): item for item in items}.values()]
    return [list(range(len(items))), list(range(depth - len(items), depth))]


def _are_too_wide(config: Mapping[str, Any], path: str, value: Any) -> bool:
    """Whether the number of heads makes them wider than those of any published model."""
    return type(value) is int and width_of_heads(config, path, value) > limits.WIDEST_HEAD


def _with_another_flag(solved: _Solved, most: int) -> Iterator[str]:
    """Yield a flag and at most `most` keys that, changed together with it, fit as well."""
    until = time.thread_time() + limits.FLAG_SECONDS
    trees = solved.trees
    timed = solved._replace(
        trees=lambda values: trees(values) if time.thread_time() < until else None
    )
    for key, value in flags(every_key(changed(solved.config, solved.values))):
        remains = timed.remains({key.path: value})
        if remains is None or not remains.differ:
            continue
        if remains.lengths or not remains.numbers or key.path in solved.values:
            with_others = _completed(timed, {key.path: value}, remains, key.path, most=most)
            if with_others is not None:
                yield from (key.path, *with_others)


def _completed(
    solved: _Solved, changes: Mapping[str, Any], remains: TreeComparison, flag: str, *, most: int
) -> tuple[str, ...] | None:
    """Return the keys with which the changed flag fits: at most `most`; None if none fit."""
    now = changed(solved.config, {**solved.values, **changes})
    keys = every_key(now)
    further = [*flags(keys)]
    if remains.numbers:  # names differ: only a key that adds or removes modules helps
        further += [KeyChange(key, 1) for key in keys if key.value is None]
        further += [KeyChange(key, NULL) for key in keys if type(key.value) is int]
    else:
        further += candidates.solved(now, remains)
        further += [KeyChange(key, 1) for key in keys if key.default and type(key.value) is int]
    for key, value in further[: limits.FLAG_CHANGES]:
        both = {**changes, key.path: value}
        after = None if key.path == flag else solved.remains(both)
        if after is not None and not after.differ:
            return (key.path,)
        if after is not None and most > 1 and remains.numbers and not after.numbers:
            rest = _completed(solved, both, after, flag, most=most - 1)
            if rest is not None:
                return (key.path, *rest)
    return None


def _heads_beside(
    keys: tuple[Key, ...], path: str, known: set[str], values: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the keys of a changed width's heads: their number, and their width if it is stated.

    A config is another model's if a depth and another key of its object changed, or more than two
    keys.
    """
    changes = sum(parent_of(other) == parent_of(path) for other in values)
    is_of_another = changes > limits.FEW or (changes == limits.FEW and DEPTH.search(path))
    if is_heads(path) or is_width(path) or is_of_another:
        for key in beside(keys, parent_of(path)):
            is_open = is_heads(key.path) or (key.name == HEAD_DIM and not key.default)
            if is_open and type(key.value) is int and key.path not in known:
                yield key.path


def _repeated(keys: tuple[Key, ...], path: str, declared: Any, seen: set[str]) -> Iterator[str]:
    """Yield stated keys with a changed key's declared value: other depths and namesakes."""
    for key in keys:
        equal = is_identical(key.value, declared)
        if key.default or not equal or key.path in seen:
            continue
        depth = key.parent == parent_of(path) and type(declared) is int and DEPTH.search(path)
        if (depth and DEPTH.search(key.path)) or key.name.endswith(name_of(path)):
            yield key.path


def _unseen_widths(keys: tuple[Key, ...], seen: set[str]) -> Iterator[str]:
    """Yield stated widths that the family's code reads, although no shape contains them."""
    for key in keys:
        is_size = key.path.endswith(_SIZES) and type(key.value) is int and key.value > 1
        if is_size and not key.default and key.path not in seen:
            yield key.path
