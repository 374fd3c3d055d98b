"""The rotation of queries and keys: how its settings are completed, and what is checked of them.

They stand in `rope_parameters`, flat or by the kind of layer; older configs have `rope_scaling`
and `rope_theta`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from auditor.analytic.config_classes.completed import Hook, Settled, copied_object
from auditor.messages import described

KEY = "rope_parameters"
_FACTOR = "partial_rotary_factor"
_LENGTH = "original_max_position_embeddings"
_STRETCHED = ("llama3", "yarn", "longrope")  # types that know the length of pretraining

# What each type needs beside its name. Keys that it does not know are warned of, no more.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "axial": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", _LENGTH),
    "longrope": ("short_factor", "long_factor", _LENGTH),
    "llama3": ("factor", _LENGTH, "low_freq_factor", "high_freq_factor", "rope_theta"),
    "proportional": ("rope_theta",),
}
_MOST_UNPAIRED = 4  # test checkpoints have heads of this width or less, which are let through


def convert_rope(config: Settled, others: dict[str, Any], own: Hook | None) -> None:
    """Bring all that is said of the rotation into `rope_parameters`; other keys are left alone."""
    if isinstance(config.get(KEY), dict):
        config.values[KEY] = copied_object(config.values[KEY])
    if KEY not in config and not (others.get("rope_scaling") and others.get("rope_theta")):
        return
    if others.get("rope_scaling"):
        config.spelt[KEY] = "rope_scaling"
    with config.working_with(KEY):
        (own or _convert)(config, others)


def _convert(config: Settled, others: dict[str, Any]) -> None:
    scaling = others.pop("rope_scaling", None)
    if not set_rope_parameters(config, scaling or config.get(KEY) or {}):
        return
    theta = others.pop("rope_theta", config.get("rope_theta", config.kind.theta))
    factor = others.pop(_FACTOR, config.get(_FACTOR))
    parameters = config[KEY]
    each = [parameters[key] for key in layer_kinds_with_rope(config, parameters)] or [parameters]
    for one in each:
        if one is not None:
            one.setdefault("rope_theta", theta)
            if factor is not None:
                one.setdefault(_FACTOR, factor)
    standardize_rope(config)


def set_rope_parameters(config: Settled, value: Any) -> bool:
    """Set `rope_parameters`; False where its type forbids the value."""
    if config.set(KEY, copied_object(value) if isinstance(value, dict) else value):
        return True
    config.values[KEY] = {}
    return False


def layer_kinds_with_rope(config: Settled, parameters: Iterable[str]) -> list[str]:
    """The kinds of layers that have settings of their own; none where all share them."""
    kinds = config.get("_rope_type_labels") or config.get("layer_types") or ()
    if isinstance(kinds, list):  # of a hostile length, maybe
        kinds = {kind for kind in kinds if isinstance(kind, str)}
    return [key for key in parameters if key in kinds]


def standardize_rope(config: Settled) -> None:
    """Give all settings, or those of each kind of layer, a type, a base, and what follows."""
    theta, factor = config.get("rope_theta"), config.get(_FACTOR)
    parameters = config.get(KEY) or {}
    nested = layer_kinds_with_rope(config, parameters)
    if not (parameters or theta):
        return
    every = [parameters[key] for key in nested] if nested else [parameters]
    for one in every:
        if one is None:
            continue
        one.setdefault("rope_type", one.get("type", "default"))
        one.setdefault("rope_theta", theta)
        if factor is not None:
            one.setdefault(_FACTOR, factor)
        if one["rope_type"] in _STRETCHED:
            _set_length(config, one, flat=not nested)
        if config.kind.rope_type != "default" and one["rope_type"] == "default":
            one["rope_type"] = config.kind.rope_type
    config.set(KEY, parameters)


def _set_length(config: Settled, one: dict[str, Any], *, flat: bool) -> None:
    if flat and _LENGTH in config:
        one[_LENGTH] = config[_LENGTH]
    else:
        one.setdefault(_LENGTH, config["max_position_embeddings"])


def rope_by_layer_kind(bases: Mapping[str, str], *, scaled: Collection[str]) -> Hook:
    """The hook of a class whose two kinds of layers have settings of their own.

    An older config has the base of each kind under the key that `bases` gives, and one
    `rope_scaling`, which goes to the `scaled` kinds.
    """

    def hook(config: Settled, others: dict[str, Any]) -> None:
        scaling = others.pop("rope_scaling", None)
        parameters = config[KEY]
        if parameters is None:
            parameters = {kind: {"rope_type": "default"} for kind in bases}
        for kind, base in bases.items():
            if scaling is not None and kind in scaled:
                parameters[kind].update(scaling)
            if parameters.get(kind) is None:
                parameters[kind] = {"rope_type": "default"}
            theta = config.kind.theta["global" if kind == "full_attention" else "local"]
            parameters[kind].setdefault("rope_theta", others.pop(base, theta))
        config.set(KEY, parameters)
        standardize_rope(config)

    return hook


# --- what is checked ---------------------------------------------------------------------------


def validate_rope_parameters(config: Settled) -> None:
    parameters = config.get(KEY)
    if not parameters:
        return
    with config.working_with(KEY):
        nested = layer_kinds_with_rope(config, parameters)
        every = [parameters[key] for key in nested] if nested else [parameters]
        for one in every:
            if one is not None:
                _validate_one(config, one)


def _validate_one(config: Settled, one: dict[str, Any]) -> None:
    kind = one.get("rope_type", one.get("type", "default"))
    one["rope_type"] = kind
    if isinstance(kind, str) and kind in _NEEDED:
        absent = [key for key in _NEEDED[kind] if key not in one]
        if absent:
            what = f"{config.named(KEY)} has no {absent[0]}"
            config.refuse(f'{what}, which rope_type "{kind}" needs', KEY)
            return
        _validate_values(config, one, kind)
    head, factor = config.get("head_dim"), one.get(_FACTOR, 1.0)
    if config.by_layer is not None or head is None or head <= _MOST_UNPAIRED or not head % 2:
        return
    if int(head * factor) == head:
        what = f"{config.named('head_dim')} is {described(head)}"
        config.refuse(f"{what}, and a rotation turns pairs: expected an even number", "head_dim")


def _validate_values(config: Settled, one: Mapping[str, Any], kind: str) -> None:
    """What the library's checks compare or divide, which fails for values of a wrong kind."""
    if kind == "yarn":
        _ = (one.get("beta_fast") or 32) < (one.get("beta_slow") or 1)
        _ = config["max_position_embeddings"] / one[_LENGTH]
    elif kind == "llama3":
        _ = one["high_freq_factor"] <= one["low_freq_factor"]
        _ = one[_LENGTH] >= config["max_position_embeddings"]
    elif kind == "longrope":
        head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
        _ = int(head * one.get(_FACTOR, 1.0)), len(one["short_factor"]), len(one["long_factor"])
