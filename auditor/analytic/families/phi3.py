"""Phi 3 and 4, https://arxiv.org/abs/2404.14219: a Llama of fused projections."""

from typing import Any

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules, rope
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    HEADS,
    KEYS,
    decoder_of,
    fused_mlp,
    head_dim,
    key_value_heads,
    layer,
    register,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import dropout, groups, scaled
from auditor.analytic.rotation import partial_frequencies
from auditor.messages import described

PHI3 = Family(
    model_type="phi3",
    taken_over=True,
    prefix="model",
    base="Phi3Model",
    keys=f"{KEYS} head_dim",
)


def fused_attention(c: Config) -> Module:
    D, H, width = c.dim("hidden_size"), c.dim("num_attention_heads"), head_dim(c)
    K = key_value_heads(c)
    return module(
        o_proj=Linear(H * width, D, bias=False),
        qkv_proj=Linear(D, (H + 2 * K) * width, bias=False),
        groups=groups(c, H, K),
        scale=scaled(c, width),
    )


def block(c: Config) -> Module:
    share = module(share=dropout(c, "resid_pdrop"))
    return layer(c, self_attn=fused_attention(c), mlp=fused_mlp(c), resid_attn_dropout=share)


# --- the config --------------------------------------------------------------------------------

_FACTORS = ("short_factor", "long_factor")


def rotation_of(config: Settled, others: dict[str, Any]) -> None:
    """Types by their older names are longrope's today."""
    scaling = others.pop("rope_scaling", None)
    if not rope.set_rope_parameters(config, scaling or config[rope.KEY] or {}):
        return
    parameters = config[rope.KEY]
    parameters.setdefault("rope_theta", others.pop("rope_theta", 10_000.0))
    parameters.setdefault("partial_rotary_factor", others.get("partial_rotary_factor", 1.0))
    rope.standardize_rope(config)
    if parameters.get("rope_type") in ("su", "yarn"):
        parameters["rope_type"] = "longrope"


def check_factors(config: Settled, others: dict[str, Any]) -> None:
    """Plain or longrope, whose factors are as many as half the features that turn."""
    del others
    parameters, key = config[rope.KEY], rope.KEY
    with config.working_with(key):
        kind = parameters.get("rope_type")
        heads = config["hidden_size"] // config["num_attention_heads"]
        pairs = int(heads * parameters["partial_rotary_factor"]) // 2
        if kind not in ("default", "longrope"):
            what = f"{config.named(key)} has the rope_type {described(kind)}"
            config.refuse(f'{what}, expected "default" or "longrope"', key)
        for name in _FACTORS:
            factors = parameters.get(name)
            if factors is not None:
                _check_each(config, name, factors, pairs)


def _check_each(config: Settled, name: str, factors: Any, pairs: int) -> None:
    what = f"{config.named(rope.KEY)}.{name}"
    numbers = isinstance(factors, list) and all(isinstance(each, int | float) for each in factors)
    if not numbers:
        config.refuse(f"{what} is not a list of numbers", rope.KEY)
    elif len(factors) != pairs:
        config.refuse(f"{what} has {len(factors)} numbers, expected {pairs}", rope.KEY)


config_rules(
    "Phi3Config", first=_configs.key_value_heads, rotation=rotation_of, last_rotation=check_factors
)


register(PHI3, "Phi3", decoder_of(block, turns=partial_frequencies), heads=HEADS[:3])

loads("phi3", LoadingFacts(rotary=True))
