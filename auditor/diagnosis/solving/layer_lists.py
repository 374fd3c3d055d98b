"""Lists of a config with an item for each layer, which change with the number of layers.

A list may state an item for each layer (`layer_types`), patterns and how often each is repeated
(`attention_types`: `[[["global", "local"], 6]]`), or the numbers of some layers (`full_attn_idxs`).
Each list belongs to a depth: a key beside it that counts the layers, such as num_hidden_layers.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from auditor.analytic.config_keys import (
    Key,
    beside,
    every_key,
    object_at,
    parent_of,
    path_of,
    value_at,
)
from auditor.analytic.dims import dim
from auditor.analytic.lookup import follow
from auditor.analytic.outline import ClassTree, leaves, spellings
from auditor.diagnosis.solving import limits
from auditor.diagnosis.solving.held_tensors import HeldTensors
from auditor.diagnosis.solving.size_keys import DEPTH
from auditor.diagnosis.solving.trials import Trees
from auditor.names.parts import MOST_DIGITS

_NUMBERS = re.compile(r"(layers|idxs|indices|indexes|layer_ids)$")  # ends of keys of layer numbers
_OF_STAGES = ("stage_names", "out_features", "out_indices")  # keys that depend on the layers
_SURE = 8  # from this depth on, a list of equal length is hardly a coincidence


class LayerList(NamedTuple):
    """A config list with an item for each layer, and the key (depth) that counts the layers."""

    path: str
    depth: str  # path of the depth, which the config may omit
    layers: int  # value of the depth


def layer_lists(config: Mapping[str, Any]) -> Iterator[LayerList]:
    """Yield the lists of a config that belong to a depth in the same config object."""
    for key in every_key(config, shaping=False):
        if not _is_depth(key):
            continue
        depth = key.value
        for other, items in object_at(config, key.parent).items():
            if not isinstance(items, list) or not items:
                continue
            is_sure = "layer" in other or depth >= _SURE or items == items[:1] * len(items)
            by_layer = len(items) == depth and is_sure
            if by_layer or repeats(items, depth) or has_numbers(other, items, depth):
                yield LayerList(path_of(key.parent, other), key.path, depth)


def _is_depth(key: Key) -> bool:
    is_number = type(key.value) is int and 1 < key.value < limits.LAYERS
    return is_number and DEPTH.search(key.path) is not None


def empty_lists(config: Mapping[str, Any]) -> Iterator[LayerList]:
    """Yield the empty lists of layer numbers that a config states, or omits by default."""
    keys = every_key(config)
    for key in keys:
        if key.value in ([], ()) and _NUMBERS.search(key.path):
            depths = filter(_is_depth, beside(keys, key.parent))
            yield from (LayerList(key.path, one.path, one.value) for one in islice(depths, 1))


def repeats(items: list[Any], depth: int) -> bool:
    """Whether the items are (pattern, repetitions) pairs that add up to the depth."""
    pairs = [
        one for one in items
        if isinstance(one, list) and len(one) == 2  # noqa: PLR2004 - a pair
        and isinstance(one[0], list) and type(one[1]) is int
    ]  # fmt: skip
    return len(pairs) == len(items) and sum(len(one) * times for one, times in pairs) == depth


def has_numbers(name: str, items: list[Any], depth: int) -> bool:
    """Whether the items are numbers of layers, in order."""
    numbers = [item for item in items if type(item) is int]
    ordered = len(numbers) == len(items) and numbers == sorted({*numbers})
    return ordered and max(numbers, default=0) < depth and bool(_NUMBERS.search(name))


def of_depth(items: list[Any], declared: int, depth: int) -> list[Any] | None:
    """Return a list for `declared` layers, adapted to `depth` layers; None if it is impossible."""
    if not 0 < depth < limits.LAYERS:
        return None
    if len(items) == declared:
        return _of_length(items, depth)
    if repeats(items, declared):
        pattern, times = items[-1]
        more, rest = divmod(depth - declared, len(pattern))
        fits = not rest and times + more > 0
        return [*items[:-1], [pattern, times + more]] if fits else None
    if items[-1] < depth:
        return items
    return sorted({number * depth // declared for number in items})


def _of_length(items: list[Any], length: int) -> list[Any]:
    """Return the list cut or extended to `length`.

    A list 0, 1, 2, ... counts on; any other list repeats its shortest period.
    """
    if items == list(range(len(items))):
        return list(range(length))
    period = next(
        step for step in range(1, len(items) + 1) if items[step:] == items[: len(items) - step]
    )
    return [items[at] if at < len(items) else items[at % period] for at in range(length)]


def resized(config: Mapping[str, Any], changes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, new value) for lists, and objects by layer, that belong to changed depths."""
    for one in layer_lists(config):
        depth = changes.get(one.depth)
        if type(depth) is int and one.path not in changes:
            items = of_depth(value_at(config, one.path), one.layers, depth)
            if items is not None:
                yield one.path, items
    for path, depth in changes.items():
        if type(depth) is int and DEPTH.search(path):
            parent = parent_of(path)
            for other, items in object_at(config, parent).items():
                if (kept := _up_to(depth, items)) != items:
                    yield path_of(parent, other), kept


def without_layers(
    config: Mapping[str, Any], depth: str, stored: Sequence[int]
) -> Mapping[str, object]:
    """Return the lists with an item for each layer, without the items of layers not stored.

    `depth` is the path of the key that counts the layers. Keys that select stages of a backbone are
    set to None.
    """
    parent, declared = parent_of(depth), value_at(config, depth)
    values = object_at(config, parent)
    shorter: dict[str, object] = dict.fromkeys(name for name in _OF_STAGES if name in values)
    for name, one in values.items():
        if isinstance(one, list) and len(one) == declared > stored[-1]:
            shorter.setdefault(name, [one[at] for at in stored])
    return {path_of(parent, name): value for name, value in shorter.items()}


def _up_to(depth: int, items: Any) -> Any:
    """Return an object by layer, `{"5": {...}}`, without further layers; return others as is."""
    if not isinstance(items, Mapping) or not all(map(_is_layer, items.items())):
        return items
    return {layer: one for layer, one in items.items() if int(layer) < depth}


def _is_layer(item: tuple[str, Any]) -> bool:
    layer, settings = item
    is_number = layer.isdecimal() and len(layer) <= MOST_DIGITS
    return is_number and isinstance(settings, Mapping)


# --- items by the tensors that each layer stores -------------------------------------------------


def fitted(
    config: Mapping[str, Any],
    one: LayerList,
    words: Iterable[Any],
    trees: Trees,
    stored: HeldTensors,
) -> list[Any] | None:
    """Return the list that gives each layer the item whose tensors the layer stores.

    `words` are the items to choose from; `trees` builds the tree with other values. Return None if
    the list consists of patterns, or if there is nothing to choose.
    """
    items, depth = value_at(config, one.path) or [], one.layers
    if repeats(items, depth):
        return None
    if by_number := has_numbers(one.path, items, depth):
        choices = {"in": True, "out": False}
        by_choice = {"in": list(range(depth)), "out": []}
        declared = ["in" if at in items else "out" for at in range(depth)]
    else:
        choices = {json.dumps(item): item for item in (*items, *words)}
        by_choice = {text: [item] * depth for text, item in choices.items()}
        declared = [json.dumps(item) for item in items]
    if not 1 < len(choices) <= limits.ITEMS:
        return None
    found = {text: trees({one.path: values}) for text, values in by_choice.items()}
    built = {text: tree for text, tree in found.items() if tree is not None}
    best = _chosen(declared, built, stored)
    if by_number:
        return [at for at, text in enumerate(best) if text == "in"]
    return [choices[text] for text in best]


def _chosen(declared: list[str], trees: Mapping[str, ClassTree], stored: HeldTensors) -> list[str]:
    """Return the word of each layer: the word whose tree fits most of the layer's tensors.

    One tensor of a layer represents all whose names differ only in their numbers.
    """
    places = {
        name
        for tree in trees.values()
        for leaf in leaves(tree.tree)
        for place in leaf.lists
        if place.modules.value == len(declared)
        for name in spellings(place.name, tree.prefix)
    }
    scores: dict[int, Counter[str]] = {}
    layers = dict(pair for place in sorted(places) for pair in stored.by_layer(place))
    for name, at in layers.items():
        shape = stored.shapes[name]
        for text, tree in trees.items():
            steps = (follow(tree.tree, one).shape for one in spellings(name, tree.prefix))
            expected = next((step for step in steps if step), None)
            if expected and (shape is None or tuple(dim(n).value for n in expected) == shape):
                scores.setdefault(at, Counter())[text] += 2
            elif expected:
                scores.setdefault(at, Counter())[text] += 1
    chosen = list(declared)
    for at, text in enumerate(declared):
        score = scores.get(at, Counter())
        most = max(score.values(), default=0)
        if score[text] < most:
            chosen[at] = min(other for other, count in score.items() if count == most)
    return chosen
