"""The values of config keys that plain lengths give, and head counts that follow new widths.

A plain length is an expected length that is a single key.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any

from auditor.analytic.config_keys import beside, changed, every_key, indexed, key_at, value_at
from auditor.analytic.dims import dim
from auditor.diagnosis.solving.candidates import GROUPS, HEAD_DIM, WIDTHS, is_heads
from auditor.diagnosis.solving.layer_lists import layer_lists
from auditor.diagnosis.solving.trials import TreeComparison


def plain_values(config: Mapping[str, Any], remains: TreeComparison) -> dict[str, tuple[Any, int]]:
    """Return the keys that plain lengths give: path -> (value, number of tensors that give it).

    If lengths give several values of a key, the value that most tensors give is returned. A number
    of modules without a formula is that depth whose lists by layer have as many items.
    """
    votes: dict[tuple[str, int | None], Counter[int]] = {}
    depths = {one.layers: one.depth for one in layer_lists(config)}
    for equation, number in remains.equations.items():
        size, depth = equation.size, depths.get(equation.size.value)
        is_count = not size.symbols and (size.value, equation.wanted) not in remains.lengths
        if is_count and depth and equation.wanted:
            votes.setdefault((depth, None), Counter())[equation.wanted] += number
        for symbol in size.symbols:
            if size == dim(symbol) and equation.wanted:
                place = indexed(symbol.key)
                path = key_at(config, place[0] if place else symbol.key, symbol.value).path
                into = votes.setdefault((path, place[1] if place else None), Counter())
                into[equation.wanted] += number
    found: dict[str, tuple[Any, int]] = {}
    for (path, index), wanted in votes.items():
        [(value, number)] = wanted.most_common(1)
        if index is None:
            found[path] = value, number
            continue
        items, before = found.get(path, (value_at(config, path), 0))
        if isinstance(items, list) and index < len(items):
            found[path] = [*items[:index], value, *items[index + 1 :]], before + number
    return {path: one for path, one in found.items() if one[0] != value_at(config, path)}


def heads_of_the_same_width(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """Yield (path, number of heads) for each changed width, so that heads keep their width.

    Shapes do not determine the number if no head_dim is declared. Most models of one type have
    heads of one width, and the config needs some number that divides the new width.
    """
    keys = every_key(config)
    for path, width in changes.items():
        within, _, name = path.rpartition(".")
        declared = value_at(config, path)
        if name not in WIDTHS or type(declared) is not int or type(width) is not int:
            continue
        if _has_fixed_heads(config, path):
            continue
        for key in beside(keys, within):
            heads = key.value
            name = key.path.rpartition(".")[2]
            if not is_heads(name) or type(heads) is not int or not heads or key.path in changes:
                continue
            share = declared // heads
            if name in GROUPS:
                continue
            if not declared % heads and share and not width % share:
                yield key.path, width // share
            elif width % heads:
                yield key.path, gcd(width, heads)


def _has_fixed_heads(config: Mapping[str, Any], path: str) -> bool:
    """Whether the config object of that key has a head_dim that does not follow from a width."""
    within = path.rpartition(".")[0]
    dot = f"{within}." if within else ""
    doubled = {
        f"{dot}{name}": 2 * width
        for name in WIDTHS
        if type(width := value_at(config, f"{dot}{name}")) is int
    }
    declared, probed = (
        {key.path: key.value for key in every_key(values)}.get(f"{dot}{HEAD_DIM}")
        for values in (config, changed(config, doubled))
    )
    return declared is not None and declared == probed
