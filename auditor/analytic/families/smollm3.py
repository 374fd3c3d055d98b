"""SmolLM 3, whose layers without rotary positions store the same."""

from typing import Any

from msgspec.structs import replace

from auditor.analytic.blocks import Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules, layers
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    KEYS,
    decoder_of,
    gated_mlp,
    head_dim,
    layer,
    register,
)
from auditor.analytic.families.granite import granite_attention
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import refused, scaled

SMOLLM3 = Family(
    model_type="smollm3",
    prefix="model",
    base="SmolLM3Model",
    keys=f"{KEYS} attention_bias mlp_bias head_dim",
)


_TURNS = "no_rope_layers"  # one for each layer that turns, zero for one that does not


def smollm3_block(c: Config) -> Module:
    turns, width = c.attribute(_TURNS) or (), head_dim(c)
    layers = c.integer("num_hidden_layers")
    short = c.settled is not None and len(turns) < layers
    reason = f"{c.path}{_TURNS} has {len(turns)} entries for {layers} layers"
    return layer(
        c,
        self_attn=granite_attention(c, scale=scaled(c, width)),
        mlp=gated_mlp(c, bias=c.flag("mlp_bias")),
        turns=module(each=refused(c, reason, _TURNS) if short else None),
    )


def first(config: Settled, others: dict[str, Any]) -> None:
    """Each `no_rope_layer_interval`-th layer has no rotation and, with a window, sees only that."""
    _configs.key_value_heads(config, others)
    with config.working_with(_TURNS, "no_rope_layer_interval"):
        if config[_TURNS] is None:
            each = config["no_rope_layer_interval"]
            turns = [int((n + 1) % each != 0) for n in layers.layer_numbers(config)]
            config.set(_TURNS, turns)
        turns, window = config[_TURNS], config["sliding_window"]
        windows = config["use_sliding_window"] and window is not None
        kinds = (_configs.FULL, _configs.SLIDING)
        layers.fill_layer_types(config, lambda n: kinds[bool(not turns[n] and windows)])


config_rules("SmolLM3Config", first=first)

register(SMOLLM3, "SmolLM3", decoder_of(smollm3_block), qa=replace(SMOLLM3, prefix="transformer"))

loads("smollm3", LoadingFacts(rotary=True))
