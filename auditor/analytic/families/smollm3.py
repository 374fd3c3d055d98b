"""SmolLM 3, some of whose layers have no rotary positions; all layers have equal tensors."""

from msgspec.structs import replace

from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    KEYS,
    decoder_of,
    gated_mlp,
    layer,
    register,
)
from auditor.analytic.families.granite import granite_attention
from auditor.analytic.family import LoadingFacts, loads

SMOLLM3 = Family(
    model_type="smollm3",
    prefix="model",
    base="SmolLM3Model",
    keys=f"{KEYS} attention_bias mlp_bias head_dim",
)


def smollm3_block(c: Config) -> Module:
    mlp = gated_mlp(c, bias=c.flag("mlp_bias"))
    return layer(c, self_attn=granite_attention(c), mlp=mlp)


derived_defaults("SmolLM3Config")(_configs.key_value_heads)

register(SMOLLM3, "SmolLM3", decoder_of(smollm3_block), qa=replace(SMOLLM3, prefix="transformer"))

loads("smollm3", LoadingFacts(rotary=True))
