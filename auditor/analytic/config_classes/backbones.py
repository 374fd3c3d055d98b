"""Which of its stages a backbone hands on: by name, by number, by both, or the last."""

from typing import Any

from auditor.analytic.config_classes.completed import Settled
from auditor.analytic.config_classes.layers import MOST

_NAMES, _NUMBERS = "out_features", "out_indices"


def by_depths(config: Settled, others: dict[str, Any]) -> None:
    """A stage for each of the depths."""
    with config.working_with("depths"):
        set_stages(config, others, len(config["depths"]))


def by_layers(config: Settled, others: dict[str, Any]) -> None:
    """A stage for each layer."""
    set_stages(config, others, min(config["num_hidden_layers"], MOST))


def set_stages(config: Settled, others: dict[str, Any], count: int) -> None:
    stages = ["stem", *(f"stage{number}" for number in range(1, count + 1))]
    config.values["stage_names"] = stages
    numbers, names = others.pop(_NUMBERS, None), others.pop(_NAMES, None)
    fits = [
        config.set(f"_{key}", value, called=key)
        for key, value in ((_NAMES, names), (_NUMBERS, numbers))
    ]
    if all(fits):
        with config.working_with(f"_{_NAMES}", f"_{_NUMBERS}"):
            _check(config, stages, names, numbers)


def _check(
    config: Settled, stages: list[str], names: list[str] | None, numbers: list[int] | None
) -> None:
    if names is not None:
        known = {name for name in names if isinstance(name, str)}
        _in_order(config, _NAMES, names, [name for name in stages if name in known])
    if numbers is not None:
        count = len(stages)
        found = [number % count if number < 0 else number for number in numbers]
        known_numbers = set(found)
        _in_order(config, _NUMBERS, found, [n for n in range(count) if n in known_numbers])
    if numbers is None or not _all_of(stages, numbers):
        return
    named = [stages[number] for number in numbers]  # 0.0 is in the range, and not a place in a list
    if names is not None and names != named:
        both = f"{config.path}{_NAMES} and {config.path}{_NUMBERS}"
        config.refuse(f"{both} are not of the same stages", _NAMES, _NUMBERS)


def _all_of(stages: list[str], numbers: list[int]) -> bool:
    return all(-len(stages) <= number < len(stages) for number in numbers)


def _in_order(config: Settled, key: str, stated: list[Any], ordered: list[Any]) -> None:
    if stated != ordered:
        what = "names of stages" if key == _NAMES else "numbers of stages"
        config.refuse(f"{config.named(key)}: expected {what}, each once and in order", key)
