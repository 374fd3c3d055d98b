"""Config keys that transformers 5 no longer writes at the top, and engines still read there."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from engines.saves import Config

# Other names of a value, in the order in which they are looked for.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "rope_theta": (
        "rope_parameters.rope_theta",
        "rope_parameters.full_attention.rope_theta",
    ),
    "rotary_emb_base": ("rope_parameters.rope_theta",),
    "rotary_pct": ("rope_parameters.partial_rotary_factor",),
    "partial_rotary_factor": ("rope_parameters.partial_rotary_factor",),
    "rope_local_base_freq": ("rope_parameters.sliding_attention.rope_theta",),
    "global_rope_theta": ("rope_parameters.full_attention.rope_theta",),
    "local_rope_theta": ("rope_parameters.sliding_attention.rope_theta",),
    "rope_percent": ("rope_parameters.partial_rotary_factor",),
    "n_ctx": ("n_positions", "max_position_embeddings"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_local_experts": ("num_experts",),
    "block_dim": ("hidden_size",),
    "block_ff_dim": ("intermediate_size",),
    "head_dim": ("attention_head_dim",),
    "rope_scaling": ("rope_parameters",),
    "multi_query": (),
}


def missing_keys(error: str) -> tuple[str, ...]:
    """Return the config keys whose absence an error message names."""
    if "required positional argument" in error or "required keyword-only argument" in error:
        return tuple(re.findall(r"'(\w+)'", error.partition("missing")[2]))
    if match := re.fullmatch(r"KeyError: '(\w+)'", error.strip()):
        return (match[1],)
    if match := re.search(r"could not find any of: \[([^\]]*)\]", error):
        return tuple(re.findall(r"'(\w+)'", match[1])[:1])
    return ()


def fill_of(config: Config, model_type: str, path: str) -> tuple[Any, Any]:
    """Return where a key's value stands in the config, or the value itself, and the value.

    The first is None if neither the config nor its class has such a value.
    """
    *outer, key = path.split(".")
    start = "".join(f"{part}." for part in outer)
    inside = at(config, ".".join(outer)) if outer else config
    own_type = inside.get("model_type", model_type) if isinstance(inside, dict) else model_type
    try:
        config_class = CONFIG_MAPPING[own_type]
    except KeyError:
        config_class = transformers.PretrainedConfig
    renamed = getattr(config_class, "attribute_map", {})
    backwards = {new: old for old, new in renamed.items()}
    names = (*_SYNONYMS.get(key, ()), renamed.get(key, ""), backwards.get(key, ""))
    for name in (f"rope_parameters.{key}", *names):
        if name and (value := at(config, start + name)) is not None:
            return start + name, value
    value = getattr(config_class(), key, None)
    return (value, value) if isinstance(value, int | float | str | list) else (None, None)


def with_keys(config: Config, fills: Mapping[str, Any]) -> Config:
    """Return the config with keys that an engine requires, by what `fills` gives for each."""
    filled = deepcopy(config)
    for path, source in fills.items():
        value = at(config, source) if isinstance(source, str) else source
        *outer, key = path.split(".")
        inside = filled
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[key] = value
    return filled


def as_version_4(config: Config) -> Config:
    """Return the config as transformers 4 wrote it: rope keys at the top, torch_dtype."""
    older = {key: value for key, value in config.items() if key != "dtype"}
    if "dtype" in config:
        older["torch_dtype"] = config["dtype"]
    rope = older.pop("rope_parameters", None)
    if isinstance(rope, dict):
        older |= _older_rope(rope)
    if isinstance(older.get("text_config"), dict):
        older["text_config"] = as_version_4(older["text_config"])
    return older


def _older_rope(rope: Mapping[str, Any]) -> Config:
    if "full_attention" in rope and isinstance(rope["full_attention"], dict):
        found = _older_rope(rope["full_attention"])
        sliding = rope.get("sliding_attention")
        if isinstance(sliding, dict) and "rope_theta" in sliding:
            found["rope_local_base_freq"] = sliding["rope_theta"]
        return found
    scaling = {k: v for k, v in rope.items() if k not in {"rope_theta", "partial_rotary_factor"}}
    top = {k: rope[k] for k in ("rope_theta", "partial_rotary_factor") if k in rope}
    kind = scaling.get("rope_type", "default")
    return {**top, "rope_scaling": None if kind == "default" else {**scaling, "type": kind}}


def at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None if there is none."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
