"""Qwen2.5-VL, https://arxiv.org/abs/2502.13923: Qwen2-VL with a tower made of Llama's blocks."""

from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.blocks import Module, RMSNorm, module
from auditor.analytic.catalogue import Family
from auditor.analytic.config import Config
from auditor.analytic.families import qwen2_vl
from auditor.analytic.families._decoder import gated_mlp
from auditor.analytic.families.qwen2_vl import (
    QWEN2_VL_MODEL_RENAMES,
    QWEN2_VL_RENAMES,
    merged,
    merger,
    register,
    tower,
)
from auditor.analytic.family import LoadingFacts, loads

TEXT = replace(qwen2_vl.TEXT, model_type="qwen2_5_vl_text", base="Qwen2_5_VLTextModel")
VISION = Family(
    model_type="qwen2_5_vl_vision",
    prefix="model",
    base="Qwen2_5_VisionTransformerPretrainedModel",
    keys=(
        "depth hidden_size intermediate_size in_channels patch_size spatial_merge_size "
        "temporal_patch_size out_hidden_size"
    ),
    letters=MappingProxyType({"out_hidden_size": "O", "spatial_merge_size": "m"}),
)
QWEN2_5_VL = replace(qwen2_vl.QWEN2_VL, model_type="qwen2_5_vl", base="Qwen2_5_VLModel")


def visual(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        **tower(c, D, norm=RMSNorm, mlp=partial(gated_mlp, c, bias=True)),
        merger=merger(RMSNorm(D), merged(c, D), c.dim("out_hidden_size")),
    )


register(QWEN2_5_VL, TEXT, VISION, visual)

loads("qwen2_5_vl", LoadingFacts(inside=(("language_model", "text_config", "qwen2_5_vl_text"),)))
loads("qwen2_5_vl_text", LoadingFacts(rotary=True))
loads("Qwen2_5_VLForConditionalGeneration", LoadingFacts(rules=QWEN2_VL_RENAMES))
loads("Qwen2_5_VLModel", LoadingFacts(rules=QWEN2_VL_MODEL_RENAMES))
