"""The keys of a solved config that no shape determines: they are named without a value.

A width of `H*d` rows leaves the number of heads open; no shape shows which layers attend to all
tokens, or the width of feed-forward layers that no layer has.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from auditor.analytic.blocks import symbols
from auditor.analytic.config_classes import library
from auditor.analytic.config_keys import NULL, Key, beside, changed, every_key, key_at, value_at
from auditor.analytic.dims import dim
from auditor.analytic.outline import ClassTree, sizes_of
from auditor.diagnosis.solving.candidates import (
    HEAD_DIM,
    WIDEST,
    WIDTHS,
    KeyChange,
    flags,
    is_heads,
    solved,
    width_of_heads,
)
from auditor.diagnosis.solving.determined import determined_sizes
from auditor.diagnosis.solving.joint import Trees, other_words
from auditor.diagnosis.solving.layer_lists import DEPTH, LayerList, layer_lists
from auditor.diagnosis.solving.trials import TreeComparison, Trials
from auditor.errors import CheckpointError

_SIZES = ("size", "dim", "rank", "inner")  # ends of keys that are widths
_MOST_CHANGES = 48  # further changes that are tried after a flag is changed
_SECONDS = 0.8  # processor time for further flags; a T5's take 0.1
_FEW = 2  # keys that one slip in a config may change
_MOST_FURTHER = 2  # the most further keys that change with a flag if heads are implausibly wide


def open_keys(
    config: Mapping[str, Any],
    values: Mapping[str, Any],
    trees: Trees,
    trials: Trials,
    *,
    guessed: bool = False,
) -> dict[str, Any]:
    """Return the keys related to the solved values that no shape determines, with declared values.

    These are values that the stored lengths do not determine, numbers of heads next to a changed
    width, lists whose items no tensor shows, and keys that repeat a changed key. If the formulas
    are `guessed` from shapes, other numbers of heads are tried.
    """
    now = changed(config, values)
    tree = trees(values)
    if tree is None:
        return {}
    known = {
        key_at(now, symbol.key, symbol.value).path
        for symbol, value in determined_sizes(tree, trials.holdings, {}).items()
        if value == symbol.value
    }
    strange = {path for path, value in values.items() if _are_too_wide(now, path, value)}
    known -= strange
    heads = [path for path in values if guessed and is_heads(path.rpartition(".")[2])]
    for path in heads:
        known.discard(path)
        if not _has_other_heads(config, values, path, trees, trials):
            known.add(path)
    shown = {key_at(now, symbol.key.partition("[")[0], 0).path for symbol in symbols(tree.tree)}
    keys = every_key(config, shaping=False)
    declared = {key.path: key.value for key in keys}
    unknown = (path for path, value in values.items() if type(value) in {int, float})
    found = {path for path in unknown if path in shown and path not in known}
    plain = {
        key_at(now, symbol.key, 0).path
        for size in sizes_of(tree.tree)
        for symbol in size.symbols
        if size == dim(symbol)
    }
    more = (path for path in values if path not in plain | found)
    found.update(path for path in more if _has_neighbour(values, path, trees, trials))
    for one in layer_lists(now):
        # A stated list with an item for each stored layer needs no change.
        is_complete = len(value_at(config, one.path) or ()) == one.layers
        is_open = one.path in values or (one.depth in values and not is_complete)
        if is_open and _shows_nothing(now, one, values, trees, trials):
            found.add(one.path)
    found.update(_factors_beside(found & values.keys(), now, tree, known))
    found.update(path for path in values if _has_another_word(values, path, trees, trials))
    for path in values:
        within = path.rpartition(".")[0]
        changes = sum(other.rpartition(".")[0] == within for other in values)
        found.update(_heads_beside(keys, path, known, changes=changes))
        found.update(_repeated(keys, path, declared.get(path), {*values, *shown}))
    stated = (key.path for key in keys if not key.default and key.path not in values)
    found.update(path for path in stated if key_at(config, path, None).path in values)
    if len(values) > 1:
        further = _MOST_FURTHER if strange else 1
        in_time = _for_seconds(trees, _SECONDS)
        found.update(_with_another_flag(config, values, in_time, trials, most=further))
        if "model_type" in config:  # else the keys that the code reads are not known
            found.update(_unseen_widths(every_key(config), {*values, *shown}))
    if len(values) == 1:
        found -= values.keys()  # a single changed key counts as solved
    return {path: declared.get(path, value_at(config, path)) for path in sorted(found)}


def _for_seconds(trees: Trees, seconds: float) -> Trees:
    """Return the function `trees`, which returns None after this processor time."""
    until = time.thread_time() + seconds
    return lambda values: trees(values) if time.thread_time() < until else None


def ids_beyond(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token ids that fit into the declared vocabulary and not into the solved one."""
    keys = every_key(changed(config, values), shaping=False)
    sizes = {path: size for path, size in values.items() if path.rpartition(".")[2] == "vocab_size"}
    ids = [key for key in keys if key.path.endswith("_token_id") and type(key.value) is int]
    return {
        key.path: key.value
        for key in ids
        for path, size in sizes.items()
        if key.path.rpartition(".")[0] == path.rpartition(".")[0]
        and type(size) is int
        and size <= key.value < _size(value_at(config, path))
    }


def _size(declared: object) -> float:
    return declared if type(declared) is int else math.inf


def _has_neighbour(values: Mapping[str, Any], path: str, trees: Trees, trials: Trials) -> bool:
    """Whether the next larger or smaller value of a key fits as well.

    An image size has no such neighbour unless the patch size is solved too: the number of patches
    has to be a whole one.
    """
    is_image = path.endswith("image_size") and not any("patch" in other for other in values)
    if type(values[path]) is float:
        return True
    if type(values[path]) is not int or is_image:
        return False
    near = (_remains({**values, path: values[path] + step}, trees, trials) for step in (1, -1))
    return any(one is not None and not one.differ for one in near)


def _factors_beside(
    found: Iterable[str], config: Mapping[str, Any], tree: ClassTree, known: set[str]
) -> Iterator[str]:
    """Yield the other unknown keys of each length that contains a key without a known value.

    If `G*S` is stored and neither `G` nor `S` is determined, both may differ.
    """
    for size in sizes_of(tree.tree):
        paths = {key_at(config, symbol.key, 0).path for symbol in size.symbols} - known
        if not paths.isdisjoint(found):
            yield from paths


def _has_another_word(values: Mapping[str, Any], path: str, trees: Trees, trials: Trials) -> bool:
    """Whether another word fits as well: no shape tells "gated-gelu" from "gated-silu"."""
    if not isinstance(values[path], str):
        return False
    words = {*other_words(trees, values, path), *other_activations(values[path])} - {values[path]}
    remains = (_remains({**values, path: word}, trees, trials) for word in sorted(words))
    return any(one is not None and not one.differ for one in remains)


def other_activations(word: str) -> tuple[str, ...]:
    """Return the word with other activations: `gated-silu` for `gated-gelu`."""
    start, dash, name = word.rpartition("-")
    known = name in library().activations
    return tuple(f"{start}{dash}{other}" for other in ("gelu", "relu", "silu")) if known else ()


def _are_too_wide(config: Mapping[str, Any], path: str, value: Any) -> bool:
    """Whether the number of heads makes them wider than those of any published model."""
    return type(value) is int and width_of_heads(config, path, value) > WIDEST


def _with_another_flag(
    config: Mapping[str, Any],
    values: Mapping[str, Any],
    trees: Trees,
    trials: Trials,
    *,
    most: int,
) -> Iterator[str]:
    """Yield a flag and the keys that, changed together with it, fit as well."""
    for flag in flags(every_key(changed(config, values))):
        flipped = {**values, flag.key.path: flag.value}
        remains = _remains(flipped, trees, trials)
        if remains is None or not remains.differ:
            continue
        if remains.lengths or not remains.numbers or flag.key.path in values:
            with_others = _completed(config, flipped, flag.key.path, trees, trials, most=most)
            if with_others is not None:
                yield from (flag.key.path, *with_others)


def _completed(  # noqa: PLR0913 - what is changed, and how often
    config: Mapping[str, Any],
    values: Mapping[str, Any],
    flag: str,
    trees: Trees,
    trials: Trials,
    *,
    most: int,
) -> tuple[str, ...] | None:
    """Return the keys with which the changed flag fits: at most `most`; None if none fit."""
    remains = _remains(values, trees, trials)
    if remains is None or not most:
        return None
    now = changed(config, values)
    changes = [*flags(keys := every_key(now))]
    if remains.numbers:  # names differ: only a key that adds or removes modules helps
        changes += [KeyChange(key, 1) for key in keys if key.value is None]
        changes += [KeyChange(key, NULL) for key in keys if type(key.value) is int]
    else:
        changes += solved(now, remains)
        changes += [KeyChange(key, 1) for key in keys if key.default and type(key.value) is int]
    for key, value in changes[:_MOST_CHANGES]:
        further = {**values, key.path: value}
        after = None if key.path == flag else _remains(further, trees, trials)
        if after is not None and not after.differ:
            return (key.path,)
        if after is not None and remains.numbers and not after.numbers:
            rest = _completed(config, further, flag, trees, trials, most=most - 1)
            if rest is not None:
                return (key.path, *rest)
    return None


def _remains(values: Mapping[str, Any], trees: Trees, trials: Trials) -> TreeComparison | None:
    """Return the differences under these values; None if they make an invalid config."""
    with suppress(CheckpointError):
        if tree := trees(values):
            return trials.compare(tree)
    return None


def _has_other_heads(
    config: Mapping[str, Any], values: Mapping[str, Any], path: str, trees: Trees, trials: Trials
) -> bool:
    """Whether other numbers of heads fit as well.

    Twice and half the number are tried: for this key, for another key instead, and for all keys.
    """
    numbers = {
        key.path: key.value
        for key in beside(every_key(changed(config, values)), path.rpartition(".")[0])
        if type(key.value) is int and key.value
    }
    heads = {at: value for at, value in numbers.items() if is_heads(at.rpartition(".")[2])}
    widths = {at: value for at, value in numbers.items() if at.endswith(HEAD_DIM)}
    doubled = {at: 2 * value for at, value in heads.items()}
    others = [
        {path: value_at(config, path), at: other}
        for at, value in heads.items()
        for other in (2 * value, value // 2)
    ]
    others += [doubled, doubled | {at: value // 2 for at, value in widths.items()}]
    remains = (_remains({**values, **other}, trees, trials) for other in others)
    return any(one is not None and not one.differ for one in remains)


def _heads_beside(
    keys: tuple[Key, ...], path: str, known: set[str], *, changes: int
) -> Iterator[str]:
    """Yield the keys of a changed width's heads: their number, and their width if it is stated.

    `changes` is the number of keys that changed in the path's config object. That config is another
    model's if a depth and another key changed, or more than two keys.
    """
    within, _, name = path.rpartition(".")
    is_of_another = changes > _FEW or (changes == _FEW and DEPTH.search(name))
    if not (is_heads(name) or name in WIDTHS or is_of_another):
        return
    for key in beside(keys, within):
        other = key.path.rpartition(".")[2]
        is_open = is_heads(other) or (other == HEAD_DIM and not key.default)
        if is_open and type(key.value) is int and key.path not in known:
            yield key.path


def _repeated(keys: tuple[Key, ...], path: str, declared: Any, seen: set[str]) -> Iterator[str]:
    """Yield stated keys with a changed key's declared value: other depths and namesakes."""
    within, _, name = path.rpartition(".")
    for key in keys:
        folder, _, other = key.path.rpartition(".")
        equal = type(key.value) is type(declared) and key.value == declared
        if key.default or not equal or key.path in seen:
            continue
        depth = folder == within and type(declared) is int and DEPTH.search(name)
        if (depth and DEPTH.search(other)) or other.endswith(name):
            yield key.path


def _unseen_widths(keys: tuple[Key, ...], seen: set[str]) -> Iterator[str]:
    """Yield stated widths that the family's code reads, although no shape contains them."""
    for key in keys:
        is_width = key.path.endswith(_SIZES) and type(key.value) is int and key.value > 1
        if is_width and not key.default and key.path not in seen:
            yield key.path


def _shows_nothing(
    config: Mapping[str, Any],
    one: LayerList,
    values: Mapping[str, Any],
    trees: Trees,
    trials: Trials,
) -> bool:
    """Whether the list's items act on no tensor: other items fit as well."""
    items, depth = value_at(config, one.path), one.layers
    if len(items) == depth:
        several = [[item] * depth for item in {repr(item): item for item in items}.values()]
    else:
        several = [list(range(len(items))), list(range(depth - len(items), depth))]
    for other in several:
        remains = _remains({**values, one.path: other}, trees, trials)
        if remains is not None and remains.differ:
            return False
    return True
