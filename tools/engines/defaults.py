"""Config keys that a fresh save lacks, and for which the engine takes a number of its own.

The class takes the value from other keys. The engine loads the save if the two are equal.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from auditor.engines.knowledge import value_at
from engines import config4, saves
from engines.config4 import Fill
from engines.saves import Config, Outside, Save

Answer = Callable[[Save, Mapping[str, Fill]], Mapping[str, Any]]


class Default(NamedTuple):
    """The engine's number for a key, and the value that the class takes instead."""

    fill: Fill
    number: int
    outcomes: Mapping[str, bool]  # by probe


def defaults(save: Save, fills: Mapping[str, Fill], answer: Answer) -> dict[str, Default]:
    """Return the keys with which an engine loads a save that it refuses without them."""
    found: dict[str, tuple[Fill, int]] = {}
    seen = answer(save, fills)
    while seen["judged"] and not seen["loads"]:
        for path, number in seen.get("defaults", {}).items():
            fill = config4.fill_of(save.config, save.model_type, path)
            if fill is None or type(fill.value) is not int or fill.value == number:
                continue
            other = answer(save, {**fills, **_fills(found), path: fill})
            if other["loads"] or other["error"] != seen["error"]:
                found[path], seen = (fill, number), other
                break
        else:
            return {}
    outcomes = {path: _outcomes(save, path, fills, found, answer) for path in found}
    return {
        path: Default(*found[path], of_path)
        for path, of_path in outcomes.items()
        if False in of_path.values()
    }


def _fills(found: Mapping[str, tuple[Fill, int]]) -> dict[str, Fill]:
    return {path: fill for path, (fill, _) in found.items()}


def _outcomes(
    save: Save,
    path: str,
    fills: Mapping[str, Fill],
    found: Mapping[str, tuple[Fill, int]],
    answer: Answer,
) -> dict[str, bool]:
    """Return whether the engine loads saves without the key, by how the two values compare."""
    fill, number = found[path]
    others = {**fills, **_fills({other: one for other, one in found.items() if other != path})}
    outcomes = {}
    for value in (fill.value, number, number * 2):
        try:
            built = saves.build(save.class_name, _leading_to(value, fill, save.config))
        except Outside:
            continue
        if config4.fill_of(built.config, save.model_type, path) != fill._replace(value=value):
            continue
        one = answer(built, others)
        if one["judged"]:
            word = "less" if value < number else "more" if value > number else "same"
            outcomes[f"{word} {path}"] = one["loads"]
    return outcomes


def _leading_to(value: int, fill: Fill, config: Config) -> Config:
    """Return the change of a config with which its class takes a value for the key."""
    if value == fill.value or not isinstance(fill.source, str):
        return {}
    first, *divisor = re.split("/", fill.source)
    return {first: value * (value_at(config, divisor[0]) if divisor else 1)}
