"""The parameters that a 16-bit checkpoint may store in float32, because its class keeps them so."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.json import decode

_DATA = Path(__file__).parents[1] / "data" / "kept_in_f32.json"

# Parameters of state space models and linear attention, and biases of routers, that publishers keep
# in 32 bits whatever the class says: Qwen3-Next, Qwen3.5, Mamba 2, Nemotron-H, DeepSeek-V3.
_BY_PUBLISHERS = (
    *("A_log", "dt_bias", "D", "linear_attn.norm.weight", "e_score_correction_bias"),
    *("expert_bias", "sinks", "time_decay", "time_first"),
)
# Routers, which choose among experts; a dense model may call something else a gate.
_ROUTERS = ("gate.weight", "gate.wg.weight", "router.weight", "router.layer.weight")
_EXPERTS = re.compile(r"(moe_)?(num|n)_(\w+_)?experts")  # keys for the number of experts


def kept_in_f32(config: Mapping[str, Any]) -> re.Pattern[str]:
    """Return a pattern for `search` that matches the names of parameters that stay in float32.

    The parameters depend on the config's model type and the types of its nested configs.
    `tools/rebuild_kept_in_f32.py` reads the parts of names from transformers' classes.
    """
    configs = [config, *(value for value in config.values() if isinstance(value, Mapping))]
    types = {each.get("model_type") for each in configs if isinstance(each.get("model_type"), str)}
    has_experts = any(map(_has_experts, configs))
    return _pattern(frozenset(types & library_parts().keys()), has_experts=has_experts)


@cache
def _pattern(model_types: frozenset[str], *, has_experts: bool) -> re.Pattern[str]:
    parts = {part for each in model_types for part in library_parts()[each]}
    routers = _ROUTERS if has_experts else ()
    names = "|".join(map(re.escape, sorted({*parts, *_BY_PUBLISHERS, *routers})))
    return re.compile(rf"(?:^|\.)(?:{names})(?:\.|$)")


def _has_experts(config: Mapping[str, Any]) -> bool:
    return any(
        isinstance(value, int) and value > 0 and _EXPERTS.fullmatch(key)
        for key, value in config.items()
    )


@cache
def library_parts() -> Mapping[str, list[str]]:
    """Return, by model type, the parts of names that transformers' classes keep in float32."""
    library: dict[str, list[str]] = decode(_DATA.read_bytes())
    return library
