"""Configs with something wrong in them, maybe: every key of every config class, changed at random.

A config is drawn from a family's strategy (which the library builds); then one to three of its
keys, or of those of a config inside it, get other values: of another type, null, zero, negative,
huge, off by one, lists of another length, unknown words. Others mix two configs, swap two values
or draw all numbers anew, so that keys contradict each other.
"""

import json
import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import MISSING, fields
from importlib import import_module
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from auditor.analytic.families import FILES

Values = dict[str, Any]

_LEFT_ALONE = frozenset({"transformers_version", "dtype", "architectures", "model_type"})

# Keys of all configs that no class declares, and some that only a few do.
_OTHERS = (
    *("num_labels", "id2label", "label2id", "problem_type", "chunk_size_feed_forward"),
    *("rope_scaling", "rope_theta", "rope_parameters", "partial_rotary_factor", "per_layer_config"),
    *("layer_types", "mlp_layer_types", "pad_token_id", "tie_word_embeddings", "head_dim"),
    *("num_key_value_heads", "is_encoder_decoder", "output_attentions", "output_hidden_states"),
    *("return_dict", "original_max_position_embeddings", "num_hidden_layers", "vocab_size"),
)
_ACTIVATIONS = (
    *("gelu", "gelu_new", "relu", "silu", "swish", "quick_gelu", "tanh", "prelu", "linear"),
    *("GELU", "unknown", "", "sigmoid", "relu2", "swiglu", "geglu", "xielu", "gelu_fast"),
)
_WORDS = (
    *("unknown", "", "full_attention", "sliding_attention", "linear_attention", "attention"),
    *("chunked_attention", "conv", "mamba", "sparse", "dense", "global", "local", "full"),
    *("default", "linear", "dynamic", "yarn", "llama3", "longrope", "group", "layer", "stable"),
    *("absolute", "relative_key", "pixel", "sum", "mean", "gated-gelu", "p2c", "true", "0"),
)
_KINDS = ("full_attention", "sliding_attention", "linear_attention", "unknown", "conv", "mamba")
_NUMBERS = (
    *(0, -1, -2, 1, 2, 3, 5, 7, 10**6, 2**31, 2**40, 2**62, 2**63, 10**20),
    *(0.0, 0.5, 1.0, 1.5, 2.0, -0.1, -1.0, 1e-12, 1e9, math.inf, math.nan),
)
_ODD = (None, True, False, "unknown", [], {}, [1], 1, 1.5, "1", -1, 0)
_EMPTY = (
    *(0, 1, 2, 3, -1, 8, 16, 64, 10**6, 10**20, 0.5, 1.5, -0.5, True, False, "unknown", "gelu"),
    *([], [1], [1, 2], ["a"], {}, {"a": 1}, 4096),
)
_LABELS = ({"0": "a"}, {"0": "a", "1": "b", "2": "c"}, {"a": "0"}, {}, ["a", "b"], {"1": 1}, "x")
_PROBLEMS = ("regression", "single_label_classification", "multi_label_classification", "x", None)
_PER_LAYER = ({}, {"0": {"head_dim": 4}}, {"1": {"intermediate_size": 8}}, {"99": {}}, {"a": {}}, 1)
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_ROTATIONS = (
    *({"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}, {"rope_type": "linear"}),
    *({"type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}),
    *({"rope_type": "dynamic"}, {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "yarn"}),
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1},
    {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192} | _LLAMA3,
    {"rope_type": "llama3", "factor": 8.0},
    {"rope_type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 2.0]},
    *({"rope_type": "longrope", "factor": 2.0}, {"type": "mrope", "mrope_section": [2, 1, 1]}),
    {"type": "su", "short_factor": [1.0], "long_factor": [2.0]},
    {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
    *({"rope_type": "unknown"}, {"rope_theta": None}, {"rope_theta": "1e4"}, {"rope_type": None}),
    *({"factor": 2.0}, {"rope_type": "default", "rope_theta": 1000000}),
    {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}},
    {"full_attention": {"rope_type": "linear"}},
    *({"rope_type": "default", "partial_rotary_factor": share} for share in (0, 0.5, 2.0)),
    *({"rope_type": "linear", "factor": factor} for factor in (0, "2")),
    *({"rope_type": "default", "rope_theta": theta} for theta in (0, -5.0)),
    *([1, 2], "linear", 2.0, {}, None),
)


def examples(model_type: str, target: str, number: int, count: int = 6) -> list[Values]:
    """Configs of the family's own strategy, as JSON has them."""
    values = import_module(f"support.strategies.{FILES[model_type]}").VALUES
    drawn: list[Values] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(values.get(target, values[model_type]))
    def draw(example: Values) -> None:
        drawn.append(json.loads(json.dumps(example)))

    draw()
    return drawn


def mutated(draw: Random, bases: list[Values], config_class: Any) -> tuple[Values, str]:
    """One of these configs with something changed, and what: for people."""
    values = deepcopy(draw.choice(bases))
    how = draw.random()
    if how < 0.12:
        _mix(draw, values, draw.choice(bases))
        return values, "two configs mixed"
    if how < 0.24:
        _renumber(draw, values, config_class)
        return values, "all numbers drawn anew"
    keys = sorted(values.keys() - _LEFT_ALONE)
    if how < 0.3 and len(keys) > 1:
        one, other = draw.sample(keys, 2)
        values[one], values[other] = values[other], values[one]
        return values, f"{one} and {other} swapped"
    if draw.random() < 0.4:
        values = _with_defaults(values, config_class)
    changes = [_change(draw, values, config_class) for _ in range(draw.choice([1] * 7 + [2, 2, 3]))]
    return values, ", ".join(changes)


def _with_defaults(values: Values, config_class: Any) -> Values:
    own = {config_class.attribute_map.get(key, key) for key in values} | set(_parts(config_class))
    return {k: v for k, v in _defaults(config_class).items() if k not in own} | values


def _defaults(config_class: Any) -> Values:
    """What each field is where a config says nothing, as far as JSON has it."""
    found = {}
    for field in fields(config_class):
        made = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in _LEFT_ALONE and made is not MISSING:
            try:
                found[field.name] = json.loads(json.dumps(made))
            except TypeError:  # of a class of its own
                found[field.name] = None
    return found


def _parts(config_class: Any) -> dict[str, Any]:
    """The classes of the configs inside, by key."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

    known = {
        key: spec.config_class
        if hasattr(spec.config_class, "sub_configs_defaults") and spec.config_class.model_type
        else CONFIG_MAPPING.get(spec.model_type)
        for key, spec in config_class.sub_configs_defaults.items()
    }
    return {key: found for key, found in known.items() if found is not None}


def _mix(draw: Random, values: Values, other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _mix(draw, values[key], value)
        elif draw.random() < 0.5:
            values[key] = deepcopy(value)


def _renumber(draw: Random, values: Values, config_class: Any) -> None:
    parts = _parts(config_class)
    for key, default in _defaults(config_class).items():
        if key in parts:
            if isinstance(values.get(key), dict):
                _renumber(draw, values[key], parts[key])
        elif draw.random() < 0.35:
            values[key] = _another_number(draw, values.get(key, default))
    for key in list(values):
        if draw.random() < 0.1:
            del values[key]


def _another_number(draw: Random, value: Any) -> Any:
    match value:
        case bool():
            return draw.random() < 0.5
        case int():
            return draw.choice([0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24])
        case float():
            return draw.choice([0.0, 0.1, 0.5, 1.0, 2.0])
        case [int(), *_] | [str(), *_]:
            return [_another_number(draw, draw.choice(value)) for _ in range(draw.randint(0, 5))]
    return value


def _change(draw: Random, values: Values, config_class: Any) -> str:
    """Change a key of the config or of one inside it; which, and to what."""
    target, path = values, ""
    while (parts := _parts(config_class)) and draw.random() < 0.75:
        key = draw.choice(sorted(parts))
        if target.get(key) is None:
            target[key] = {}
        if not isinstance(target[key], dict):
            break
        target, config_class, path = target[key], parts[key], f"{path}{key}."
    defaults = _defaults(config_class)
    own = {*defaults, *config_class.attribute_map, *target} - _LEFT_ALONE
    key = draw.choice(_OTHERS if draw.random() < 0.12 else sorted(own))
    present = target.get(key, defaults.get(config_class.attribute_map.get(key, key)))
    target[key] = _changed(draw, key, present)
    return f"{path}{key} = {str(target[key])[:80]}"


# --- other values -------------------------------------------------------------------------------


def _changed(  # noqa: PLR0911 - one for each kind of value
    draw: Random, key: str, value: Any, depth: int = 0
) -> Any:
    if key in {"rope_scaling", "rope_parameters"} and draw.random() < 0.8:
        return deepcopy(draw.choice(_ROTATIONS))
    if draw.random() < 0.12:
        return deepcopy(draw.choice(_ODD))
    match value:
        case bool():
            return draw.choice([not value, not value, None, 0, 1, "true", "false"])
        case int() | float():
            return _changed_number(draw, value)
        case str():
            return _changed_word(draw, key, value)
        case [_, *_]:
            return _changed_list(draw, key, deepcopy(value), depth)
        case dict() if value and depth < 3:
            return _changed_object(draw, deepcopy(value), depth)
    return _stated(draw, key)


def _changed_number(draw: Random, value: float) -> Any:
    how = draw.random()
    if how < 0.35:
        near = (value + 1, value - 1, value + 2, value - 2, value + draw.randint(-5, 5))
        half = value // 2 if isinstance(value, int) else value / 2
        return draw.choice([*near, value * 2, half, -value, value * 3 + 1])
    if how < 0.7:
        return draw.choice(_NUMBERS)
    if how < 0.85:
        other = float(value) if isinstance(value, int) else int(value) if value < math.inf else 0
        return draw.choice([str(value), other, [value], None, bool(value), [value] * 2, {"a": 1}])
    return draw.randint(-3, 70)


def _changed_word(draw: Random, key: str, value: str) -> Any:
    if "act" in key or "func" in key or value in _ACTIVATIONS:
        return draw.choice([*_ACTIVATIONS, "unknown", None, 1, [value], value.upper()])
    return draw.choice([*_WORDS, value.upper(), f"{value}x", None, 1, [value]])


def _changed_list(draw: Random, key: str, value: list[Any], depth: int) -> Any:
    place = draw.randrange(len(value))
    ways: tuple[Callable[[], Any], ...] = (
        list,
        lambda: value[:-1],
        lambda: [*value, value[-1]],
        lambda: value * 2,
        lambda: value[::-1],
        lambda: value[:place] + value[place + 1 :],
        lambda: draw.choice([None, value[0], str(value), {"a": 1}]),
        *[
            lambda: [
                *value[:place],
                _changed(draw, key, value[place], depth + 1),
                *value[place + 1 :],
            ]
        ]
        * 5,
    )
    return draw.choice(ways)()


def _changed_object(draw: Random, value: Values, depth: int) -> Any:
    key = draw.choice(sorted(value))
    how = draw.randrange(6)
    if how == 0:
        return {k: v for k, v in value.items() if k != key}
    if how == 1:
        return draw.choice([{}, None, [], "unknown", value | {"more": 1}])
    return value | {key: _changed(draw, key, value[key], depth + 1)}


def _stated(draw: Random, key: str) -> Any:
    """A value for a key that has none."""
    if "layer_types" in key:
        return [draw.choice(_KINDS) for _ in range(draw.randint(0, 5))]
    known = {
        "id2label": _LABELS,
        "label2id": ({"a": 0}, {"a": "0"}, ["a"], {}, "x", {"a": 0, "b": 1, "c": 2}),
        "problem_type": _PROBLEMS,
        "num_labels": (0, 1, 2, 3, 7, -1, None, "3", 2.0, True, 10**7),
        "per_layer_config": _PER_LAYER,
    }
    otherwise = _ACTIVATIONS if "act" in key else _EMPTY
    return deepcopy(draw.choice(known.get(key, otherwise)))
