"""The parameters that a 16-bit checkpoint may store in 32 bits, because its class keeps them so."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.json import decode

_DATA = Path(__file__).parents[1] / "data" / "kept_in_f32.json"

# Parameters of state space models and linear attention, and biases of routers, that publishers keep
# in 32 bits whatever the class says: Qwen3-Next, Qwen3.5, Mamba 2, Nemotron-H, DeepSeek-V3.
_BY_PUBLISHERS = (
    *("A_log", "dt_bias", "D", "linear_attn.norm.weight", "e_score_correction_bias"),
    *("expert_bias", "sinks", "time_decay", "time_first", "mlp.gate.weight"),
)


def kept_in_f32(config: Mapping[str, Any]) -> re.Pattern[str]:
    """Return a pattern that is found in the names of these parameters of a config's model type.

    The types of the configs inside it count as well. `tools/rebuild_kept_in_f32.py` reads the
    parts of names from transformers' classes.
    """
    return _pattern(frozenset(_model_types(config)))


@cache
def _pattern(model_types: frozenset[str]) -> re.Pattern[str]:
    parts = {part for each in model_types for part in library_parts().get(each, ())}
    names = "|".join(map(re.escape, sorted({*parts, *_BY_PUBLISHERS})))
    return re.compile(rf"(?:^|\.)(?:{names})(?:\.|$)")


def _model_types(config: Mapping[str, Any]) -> Iterator[str]:
    for values in (config, *config.values()):
        model_type = values.get("model_type") if isinstance(values, Mapping) else None
        if isinstance(model_type, str) and model_type in library_parts():
            yield model_type


@cache
def library_parts() -> Mapping[str, list[str]]:
    """Return the parts of names in transformers' classes, by model type."""
    library: dict[str, list[str]] = decode(_DATA.read_bytes())
    return library
