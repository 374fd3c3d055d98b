"""What all config classes of transformers do with a config, in their order.

Fields are checked and set; then what is the class's own, the configs inside, labels, rotation and
all other keys; then the validators. A family says what is its own by `config_rules`.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from auditor.analytic.config_classes import layers, rope
from auditor.analytic.config_classes.completed import WRONG, Hook, Settled, error_text, is_of_kind
from auditor.analytic.config_classes.declarations import (
    ConfigClass,
    SubConfig,
    library,
    of_model_type,
    of_name,
)
from auditor.analytic.families import FILES
from auditor.messages import described

# What the constructor takes for itself.
_TAKEN = ("torch_dtype", "name_or_path", "_commit_hash", "output_attentions", "per_layer_config")

_BACKBONE = "backbone_config"
_UNBUILT = re.compile(r"u?int\d+|bool|complex\d+|float8_\w+")  # none is a default of torch
_PACKED = ("quantization_config", "quantization", "compression_config")


class _Rules(NamedTuple):
    """What a config class does beside what all of them do."""

    first: Hook | None = None
    last: Hook | None = None
    rotation: Hook | None = None
    architecture: Hook | None = None
    layer_types: Hook | None = None
    last_rotation: Hook | None = None
    uneven: bool = False


_NONE = _Rules()
_RULES: dict[str, _Rules] = {}


def config_rules(  # noqa: PLR0913 - one keyword for each step that a class can have of its own
    *names: str,
    first: Hook | None = None,
    last: Hook | None = None,
    rotation: Hook | None = None,
    architecture: Hook | None = None,
    layer_types: Hook | None = None,
    last_rotation: Hook | None = None,
    uneven: bool = False,
) -> None:
    """Say what config classes of these names do beside, or instead of, what all of them do.

    `first` and `last`: before and after it; `rotation`: with the keys of the rotation;
    `architecture` and `layer_types`: in the validators of these names; `last_rotation`: at the end
    of `validate_rope`. `uneven`: the family handles layers that differ by
    `per_layer_config`.
    """
    for name in names:
        if name in _RULES:
            raise ValueError(f"{name} has its rules already")
        _RULES[name] = _Rules(
            first=first,
            last=last,
            rotation=rotation,
            architecture=architecture,
            layer_types=layer_types,
            last_rotation=last_rotation,
            uneven=uneven,
        )


def settle(kind: ConfigClass, values: Mapping[str, Any], path: str = "") -> Settled:
    """The config as its class completes it; it has every fault that the class would refuse."""
    return _settle(Settled(kind, path), values)


def _settle(config: Settled, values: Mapping[str, Any]) -> Settled:
    rules = _rules_of(config.kind)
    others = {key: value for key, value in values.items() if key not in config.kind.fields}
    _set_fields(config, values)
    _run(rules.first, config, others)
    _set_parts(config)
    _check_dtype(config, values)
    others.pop("torch_dtype", None)
    _set_labels(config, others)
    rope.convert_rope(config, others, rules.rotation)
    for key in library().generation:
        others.pop(key, None)
    per_layer = others.pop("per_layer_config", None)
    _set_others(config, {key: value for key, value in others.items() if key not in _TAKEN})
    layers.set_per_layer(config, per_layer)
    if config.uneven and not rules.uneven:
        config.apart.append(config.path)
    layers.rename_older(config)
    _run(rules.last, config, others)
    if not config.uneven:
        _run(rules.architecture or _base_architecture, config, others)
    _run(rules.layer_types or layers.check_types, config, others)
    rope.validate_rope_parameters(config)
    _run(rules.last_rotation, config, others)
    _check_token_ids(config)
    return config


def _rules_of(kind: ConfigClass) -> _Rules:
    if kind.model_type in FILES:
        import_module(f"auditor.analytic.families.{FILES[kind.model_type]}")
    return _RULES.get(kind.name, _NONE)


def _run(hook: Hook | None, config: Settled, others: dict[str, Any]) -> None:
    if hook is None:
        return
    try:
        hook(config, others)
    except WRONG as error:  # a value of a kind that the hook does not expect
        config.refuse(f"{config.path or 'the config'} cannot be used: {error_text(error)}", "")


# --- fields, and the configs inside ------------------------------------------------------------


def _set_fields(config: Settled, values: Mapping[str, Any]) -> None:
    for key, field in config.kind.fields.items():
        config.values[key] = field.default
        if key in values and config.set(key, values[key]) and key in config.kind.checks:
            _check_bounds(config, key, values[key])


def _check_dtype(config: Settled, values: Mapping[str, Any]) -> None:
    """Spellings that torch has nothing by the name of, and dtypes that no model is built in."""
    key = "torch_dtype" if values.get("dtype") is None else "dtype"
    value = values.get(key)
    if isinstance(value, str) and (value == "auto" or value.startswith("torch.")):
        bare = value.removeprefix("torch.")
        needed = "the name of a dtype, or no such key" if bare == "auto" else f'"{bare}"'
        config.refuse(f"{config.named(key)} is {described(value)}, expected {needed}", key)
    elif isinstance(value, str) and _UNBUILT.fullmatch(value) and not _is_within(config, values):
        needed = "a dtype of floats of 16 bits or more"
        config.refuse(f"{config.named(key)} is {described(value)}, expected {needed}", key)


def _is_within(config: Settled, values: Mapping[str, Any]) -> bool:
    """Whether something else decides: the config around it, or how the weights are packed."""
    return bool(config.path or any(values.get(key) for key in _PACKED))


def _check_bounds(config: Settled, key: str, value: Any) -> None:
    bounds = config.kind.checks[key]
    low, high = bounds.get("min", value), bounds.get("max", value)
    if value is None or not low <= value <= high:
        config.refuse(f"{config.named(key)} is {described(value)}, expected {low} to {high}", key)
    elif "divisor" in bounds and value % bounds["divisor"]:
        needed = f"a multiple of {bounds['divisor']}"
        config.refuse(f"{config.named(key)} is {described(value)}, expected {needed}", key)


def _set_parts(config: Settled) -> None:
    for key, part in config.kind.parts.items():
        value = config.values.get(key)
        if isinstance(value, Settled) or (value is None and part.optional):
            continue
        config.values[key] = settled_part(config, key, part, value)


def settled_part(config: Settled, key: str, part: SubConfig, value: Any) -> Settled | Any:
    """The config inside under that key; what it is where its class is not known here."""
    if value is not None and not isinstance(value, Mapping):
        config.refuse(f"{config.named(key)} is {described(value)}, expected an object", key)
        value = None
    stated = part.values if value is None else value
    kind = _kind_of_part(config, key, part, {} if value is None else value)
    if kind is None:
        return stated
    inner = Settled(kind, f"{config.path}{key}.", config)
    return _settle(inner, stated)


def settled_beside(config: Settled, key: str, values: Mapping[str, Any]) -> Settled | Any:
    """The same where the keys of the config inside stand beside those of the one around it."""
    kind = _kind_of_part(config, key, config.kind.parts[key], values)
    return values if kind is None else _settle(Settled(kind, config.path, config), values)


def _kind_of_part(
    config: Settled, key: str, part: SubConfig, value: Mapping[str, Any]
) -> ConfigClass | None:
    if part.class_name is not None:
        return of_name(part.class_name)
    stated = key != _BACKBONE or not value  # one that is stated has to say what it is of
    model_type = value.get("model_type", part.model_type if stated else None)
    if not isinstance(model_type, str):
        what = f"{config.named(key)}.model_type is {described(model_type)}"
        config.refuse(f"{what}, expected a string", f"{key}.model_type")
        return None
    return of_model_type(model_type)  # a type that is not known here may be a newer one


# --- labels, and all other keys ----------------------------------------------------------------


def _set_labels(config: Settled, others: Mapping[str, Any]) -> None:
    """`num_labels` where there is no `id2label`, which else is an object by numbers."""
    named = config.get("id2label")
    if named is None and config.labels is None:
        set_num_labels(config, others.get("num_labels", 2))
    elif named is not None and _are_labels(config, named):
        config.labels = len({int(number) for number in named})
    if config.get("problem_type") == "single_label_classification" and config.labels == 1:
        reason = 'problem_type is "single_label_classification", and there is one label'
        config.refuse(config.path + reason, "problem_type", "num_labels", "id2label")


def _are_labels(config: Settled, named: object) -> bool:
    if not isinstance(named, dict):
        what = f"{config.named('id2label')} is {described(named)}"
        config.refuse(f"{what}, expected an object from a label's number to its name", "id2label")
        return False
    for number in named:
        try:
            int(number)
        except ValueError:
            what = f"{config.named('id2label')} has the key {described(number)}"
            config.refuse(f"{what}, expected the number of a label", "id2label")
            return False
    return True


def set_num_labels(config: Settled, value: Any) -> None:
    """What the setter of `num_labels` does: as many labels, named by their numbers."""
    if config.labels is not None and config.labels == value:
        return
    if not isinstance(value, int):
        what = f"{config.named('num_labels')} is {described(value)}"
        config.refuse(f"{what}, expected an integer", "num_labels")
        value = 2
    config.labels = max(int(value), 0)


def _set_others(config: Settled, others: Mapping[str, Any]) -> None:
    for key, value in others.items():
        if key == "num_labels":
            set_num_labels(config, value)
        elif key == "rope_scaling":
            config.set("rope_parameters", value)
        else:
            config.set(key, value)


# --- validators --------------------------------------------------------------------------------


def _base_architecture(config: Settled, others: dict[str, Any]) -> None:
    del others
    if not all(key in config for key in ("head_dim", "num_heads", "embed_dim")):
        return
    with config.working_with("head_dim", "num_heads", "embed_dim"):
        if config["head_dim"] * config["num_heads"] != config["embed_dim"]:
            shown = config.shown("head_dim", "num_heads", "embed_dim")
            config.refuse(f"{shown} do not fit", "head_dim", "num_heads", "embed_dim")


def _check_token_ids(config: Settled) -> None:
    """That ids of special tokens can be compared with the vocabulary; the rest is a warning."""
    names = [
        name for name in ("decoder", "generator", "text_config") if config.get(name) is not None
    ]
    if len(names) > 1:
        both = " and ".join(map(config.named, names))
        config.refuse(f"{both} are both configs of text, expected one", *names)
        return
    text = config.part(names[0]) if names else config
    size = text.get("vocab_size") if text is not None else None
    if text is None or size is None or isinstance(size, int | float):
        return
    ids = (
        key
        for key, value in text.values.items()
        if key.endswith("_token_id") and is_of_kind("int", value)
    )
    if any(True for _ in ids):
        what = f"{text.named('vocab_size')} is {described(size)}"
        text.refuse(f"{what}, expected an integer", "vocab_size")
