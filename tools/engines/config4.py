"""Config keys that transformers 5 no longer writes at the top, and engines still read there."""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from auditor.engines.knowledge import value_at, value_by_rule
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
    "global_head_dim": ("head_dim",),
    "rope_scaling": ("rope_parameters",),
    "multi_query": (),
}


# Keys whose absence shows in an error about a tensor: vLLM makes it for DeepSeek-V3's method alone.
BY_TENSORS = {"topk_method": "e_score_correction_bias"}
# An error about one key that is not in the config.
_ABSENT = re.compile(
    r"\AKeyError: '(\w+)'\Z|(\w+) not exist, ?please check config"
    r"|'\w+Config' object has no attribute '(\w+)'"
)


def missing_keys(error: str) -> tuple[str, ...]:
    """Return the config keys whose absence an error message names."""
    if "required positional argument" in error or "required keyword-only argument" in error:
        return tuple(re.findall(r"'(\w+)'", error.partition("missing")[2]))
    if match := _ABSENT.search(error.strip()):
        return (match[match.lastindex or 0],)
    for key, tensor in BY_TENSORS.items():
        if tensor in error:
            return (key,)
    if match := re.search(r"could not find any of: \[([^\]]*)\]", error):
        return tuple(re.findall(r"'(\w+)'", match[1])[:1])
    return ()


class Fill(NamedTuple):
    """The value of a key that an engine requires, and where it stands in the config."""

    value: Any
    source: Any = None  # a dotted path, or the value if it is a constant; None if neither


def fill_of(config: Config, model_type: str, path: str) -> Fill | None:
    """Return the value for a missing key; None if neither the config nor its class has one."""
    *outer, key = path.split(".")
    start = "".join(f"{part}." for part in outer)
    inside = value_at(config, ".".join(outer)) if outer else config
    if not isinstance(inside, dict):
        return None
    try:
        config_class = CONFIG_MAPPING[inside.get("model_type", model_type)]
    except KeyError:
        config_class = transformers.PretrainedConfig
    renamed = getattr(config_class, "attribute_map", {})
    backwards = {new: old for old, new in renamed.items()}
    names = (*_SYNONYMS.get(key, ()), renamed.get(key, ""), backwards.get(key, ""))
    sources = [start + name for name in (f"rope_parameters.{key}", *names) if name]
    sources.append(key if outer else f"text_config.{key}")
    if key == "head_dim":
        sources.append(f"{start}hidden_size/{start}num_attention_heads")
    for source in sources:
        if (value := value_by_rule(source, config)) is not None:
            return Fill(value, source)
    if key in _DERIVED:
        value = _DERIVED[key](inside)
        return None if value is None else Fill(value)
    value = _CONSTANTS.get(key, getattr(config_class(), key, None))
    if isinstance(value, str):
        return Fill(value)  # `source` would be read as a path
    return Fill(value, value) if isinstance(value, int | float | list) else None


def _expanded(config: Config) -> int | None:
    return int(config["expand"] * config["hidden_size"]) if "expand" in config else None


def _sparse_layers(config: Config) -> list[bool] | None:
    types = config.get("mlp_layer_types")
    return None if types is None else [kind == "sparse" for kind in types]


# Values that follow from several keys.
_DERIVED: Mapping[str, Callable[[Config], Any]] = {
    "is_moe_layer": _sparse_layers,
    "intermediate_size": _expanded,
}
# Values that the class of transformers has in its code, not in its config.
_CONSTANTS: Mapping[str, Any] = {
    "mlp_bias": False,
    "post_norm": False,
    "qk_norm": True,
    "group_norm_size": 1,
    "activation_function": "swiglu",
    "first_k_dense_replace": 1,
    "mla_scale_kv_lora": True,
    "mla_scale_q_lora": True,
    "n_group": 1,
    "norm_topk_prob": True,
    "position_embedding_type": "absolute",
    "route_norm": True,
    "score_func": "sigmoid",
    "topk_group": 1,
    "topk_method": "noaux_tc",
}


def with_keys(config: Config, fills: Mapping[str, Fill]) -> Config:
    """Return the config with keys that an engine requires; each takes its own config's value."""
    filled = deepcopy(config)
    for path, (constant, source) in fills.items():
        value = value_by_rule(source, config) if isinstance(source, str) else constant
        *outer, key = path.split(".")
        inside = filled
        for part in outer:
            inside = inside.setdefault(part, {})
        if inside.get(key) is None:
            inside[key] = constant if value is None else value
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
