"""The config keys of depths, widths and numbers of attention heads, and heads of a new width."""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from typing import Any

from auditor.analytic.config_keys import (
    beside,
    changed,
    every_key,
    name_of,
    object_at,
    parent_of,
    path_of,
    value_at,
)

DEPTH = re.compile(r"(layers?|depth|num_blocks)$")  # the end of a key that counts layers
HEADS = frozenset({"num_attention_heads", "n_head", "n_heads", "num_heads"})
GROUPS = frozenset({"num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads"})
HEAD_DIM = "head_dim"
HEAD_SIZES = frozenset({HEAD_DIM, "d_kv", "kv_channels"})
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
# Widths of heads in published models, most frequent first.
USUAL_HEADS = (64, 128, 32, 80, 96, 256, 16, 8)


def is_heads(path: str) -> bool:
    """Whether a key is a number of attention heads or of groups of heads."""
    return name_of(path) in HEADS | GROUPS or path.endswith("attention_heads")


def is_width(path: str) -> bool:
    """Whether a key is the width of a model."""
    return name_of(path) in WIDTHS


def width_of_heads(values: Mapping[str, Any], path: str, value: int) -> int:
    """Return the width of a head if the key has the value; 0 if the key does not count heads."""
    within, name = object_at(values, parent_of(path)), name_of(path)
    if name not in HEADS | GROUPS or not value:
        return 0
    width = _first_of(within, WIDTHS)
    if name in GROUPS:
        value = _first_of(within, sorted(HEADS))
    return 0 if not value or width % value else width // value


def _first_of(within: Mapping[str, Any], keys: Iterable[str]) -> int:
    return next((within[key] for key in keys if type(within.get(key)) is int), 0)


def heads_of_the_same_width(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """Yield (path, number of heads) for each changed width, so that heads keep their width.

    Shapes do not determine the number if no head_dim is declared. Most models of one type have
    heads of one width, and the config needs some number that divides the new width.
    """
    keys = every_key(config)
    for path, width in changes.items():
        declared = value_at(config, path)
        if not is_width(path) or type(declared) is not int or type(width) is not int:
            continue
        if _has_fixed_heads(config, parent_of(path)):
            continue
        for key in beside(keys, parent_of(path)):
            is_free = is_heads(key.path) and key.name not in GROUPS and key.path not in changes
            heads = key.value if is_free and type(key.value) is int else 0
            if heads and not declared % heads and declared and not width % (declared // heads):
                yield key.path, width * heads // declared
            elif heads and width % heads:
                yield key.path, gcd(width, heads)


def _has_fixed_heads(config: Mapping[str, Any], parent: str) -> bool:
    """Whether the config object at that path has a head_dim that does not follow from a width."""
    widths = {path: value_at(config, path) for path in (path_of(parent, one) for one in WIDTHS)}
    doubled = {path: 2 * width for path, width in widths.items() if type(width) is int}
    declared, probed = (
        {key.path: key.value for key in every_key(values)}.get(path_of(parent, HEAD_DIM))
        for values in (config, changed(config, doubled))
    )
    return declared is not None and declared == probed
