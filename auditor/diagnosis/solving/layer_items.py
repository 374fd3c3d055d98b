"""The items of lists by layer, chosen by the tensors that each layer stores."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from auditor.analytic.config_keys import value_at
from auditor.analytic.dims import dim
from auditor.analytic.layer_lists import LayerList, has_numbers, repeats
from auditor.analytic.outline import ClassTree, follow, leaves, spellings
from auditor.reconciler.by_kind.held_tensors import HeldTensors

_MOST_WORDS = 6

Trees = Callable[[Mapping[str, Any]], ClassTree | None]  # config values -> tree of blocks


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
    if not 1 < len(choices) <= _MOST_WORDS:
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
