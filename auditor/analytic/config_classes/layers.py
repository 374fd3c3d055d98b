"""Kinds of layers, settings of single layers, and which stages a backbone hands on."""

from collections.abc import Callable, Mapping
from typing import Any

from auditor.analytic.config_classes.completed import Settled
from auditor.analytic.config_classes.declarations import library
from auditor.messages import described

_TYPES = ("layer_types", "mlp_layer_types")

# Layers that are numbered one by one; a config with more of them has too many tensors to list.
MOST = 100_000


def layer_numbers(config: Settled) -> range:
    """0, 1, 2, ... below the number of layers; a negative number means none."""
    return range(min(config["num_hidden_layers"], MOST))


def fill_layer_types(config: Settled, kind: Callable[[int], str]) -> None:
    """Layer types where the config has none: each by its number."""
    if config.get("layer_types") is None:
        config.set("layer_types", [kind(number) for number in layer_numbers(config)])


def rename_older(config: Settled) -> None:
    """Layer types by older names get their names of today."""
    for key in ("layer_types", "mtp_layer_types"):
        types = config.get(key)
        if types is None or key in config.kind.read_only:
            continue
        with config.working_with(key):
            renamed = [library().older_layer_types.get(each, each) for each in types]
            if renamed != types:
                config.set(key, renamed)


def check_types(config: Settled, others: dict[str, Any]) -> None:
    """`layer_types` has a known type for each layer; `mlp_layer_types`, where both are there."""
    del others
    for key, allowed in zip(
        _TYPES, (library().layer_types, library().mlp_layer_types), strict=True
    ):
        types = config.get(key)
        if types is None or "num_hidden_layers" not in config:
            return
        with config.working_with(key):
            unknown = [each for each in types if each not in allowed]
            if unknown:
                what = f"{config.named(key)} has {described(unknown[0])}"
                config.refuse(f"{what}, which is not a layer type", key)
            else:
                _check_length(config, key, len(types))


def _check_length(config: Settled, key: str, length: int) -> None:
    count = config["num_hidden_layers"]
    if count is not None and length not in {count, MOST}:
        layers = f"num_hidden_layers is {described(count)}"
        config.refuse(
            f"{config.named(key)} has {length} entries, and {config.path}{layers}",
            key,
            "num_hidden_layers",
        )


# --- single layers -----------------------------------------------------------------------------


def set_per_layer(config: Settled, overrides: Any) -> None:
    """`per_layer_config`: what single layers have that the others have not."""
    if overrides is None:
        return
    with config.working_with("per_layer_config"):
        single = {int(number): _normalized(each) for number, each in overrides.items()}
        _check_numbers(config, single)
        _check_windows(config, single)
        config.by_layer = _differing(config, single)


def _normalized(overrides: Any) -> Any:
    own = dict(overrides) if isinstance(overrides, dict) else overrides
    if "skip" not in own:
        return own
    skipped = own.pop("skip")
    if isinstance(skipped, str) or not all(isinstance(each, str) for each in skipped):
        raise TypeError("`skip` has to be a list of strings")
    return {**own, "skip": sorted(set(skipped))} if skipped else own


def _check_numbers(config: Settled, single: Mapping[int, object]) -> None:
    if not single:
        return
    count = config["num_hidden_layers"]
    if beyond := [number for number in single if not 0 <= number < count]:
        raise ValueError(f"layer {beyond[0]} is not one of {count}")


def _check_windows(config: Settled, single: Mapping[int, Mapping[str, Any]]) -> None:
    of_all = {key: config.get(key) for key in ("sliding_window", "attention_chunk_size")}
    count = config["num_hidden_layers"]
    each = [*single.values(), *([{}] if len(single) < count else [])]
    for overrides in each:
        if all(overrides.get(key, value) is not None for key, value in of_all.items()):
            raise ValueError("a layer has both sliding_window and attention_chunk_size")


def _differing(config: Settled, single: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What really differs, by layer. A key that the config has not is said of every layer."""
    everywhere = len(single) == config["num_hidden_layers"]
    for key in {key for own in single.values() for key in own} - {"skip"}:
        if key not in config and not (everywhere and all(key in own for own in single.values())):
            raise ValueError(f"{key} is not said of every layer")
    differing = {
        number: {
            key: value
            for key, value in own.items()
            if key == "skip" or key not in config or config[key] != value
        }
        for number, own in single.items()
    }
    return {number: own for number, own in differing.items() if own}


# --- stages of a backbone -------------------------------------------------------------------------

# By name, by number, by both; or the last.
_NAMES, _NUMBERS = "out_features", "out_indices"


def stages_by_depths(config: Settled, others: dict[str, Any]) -> None:
    """A stage for each of the depths."""
    with config.working_with("depths"):
        set_stages(config, others, len(config["depths"]))


def stages_by_layers(config: Settled, others: dict[str, Any]) -> None:
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
