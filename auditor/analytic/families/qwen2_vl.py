"""Qwen2-VL, https://arxiv.org/abs/2409.12191: a vision tower before a Qwen 2.

On disk the class with a head has the language model's older names, `model.layers`, next to the
tower; the model without a head stores the language model as `language_model`. An older config is
flat: it has the keys of `text_config` on its outer level.
"""

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Block,
    Conv,
    LayerNorm,
    Linear,
    Module,
    RMSNorm,
    module,
    repeat,
    sequential,
)
from auditor.analytic.catalogue import Builder, Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.config_classes.completion import completed_beside
from auditor.analytic.config_classes.declarations import of_name
from auditor.analytic.dims import Dim
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import attention, decoder, gated_mlp, layer
from auditor.analytic.families._vlm import lm_head
from auditor.analytic.family import LoadingFacts, Renames, loads

TEXT = Family(
    model_type="qwen2_vl_text",
    prefix="model",
    base="Qwen2VLTextModel",
    keys=(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads"
    ),
    own=MappingProxyType({"tie_word_embeddings": False}),
)
VISION = Family(
    model_type="qwen2_vl_vision",
    prefix="model",
    base="Qwen2VisionTransformerPretrainedModel",
    keys=(
        "depth embed_dim hidden_size mlp_ratio in_channels patch_size spatial_merge_size "
        "temporal_patch_size"
    ),
    letters=MappingProxyType({"hidden_size": "O", "spatial_merge_size": "m"}),
)
QWEN2_VL = Family(
    model_type="qwen2_vl",
    prefix="model",
    base="Qwen2VLModel",
    keys="tie_word_embeddings",
)


def register(family: Family, text: Family, vision: Family, visual: Builder) -> None:
    """Register the model, the model with a head, and the language model alone."""
    stem = family.base.removesuffix("Model")

    def language(c: Config) -> Config:
        if c.states("text_config"):
            return c.nested("text_config", text)
        # The language model's keys are among those of `c`, but are completed separately.
        return replace(c, family=text, completed=c.completed.part(_TEXT) if c.completed else None)

    @architecture(f"{stem}Model", family)
    def model(c: Config) -> Module:
        tower = visual(c.nested("vision_config", vision))
        return module(visual=tower, language_model=text_model(language(c)))

    @architecture(f"{stem}ForConditionalGeneration", family)
    def for_conditional_generation(c: Config) -> Module:
        inner = language(c)
        tied = c.flag("tie_word_embeddings") or inner.flag("tie_word_embeddings")
        return module(
            visual=visual(c.nested("vision_config", vision)),
            model=text_model(inner),
            lm_head=lm_head(inner, tied="model.embed_tokens.weight" if tied else None),
        )

    architecture(f"{stem}TextModel", text)(text_model)


def text_model(c: Config) -> Module:
    """Return a Qwen 2 whose number of heads has to divide the width."""
    return decoder(c, partial(text_block, c))


def text_block(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    self_attn = attention(c, D.floor(H), qkv_bias=True)
    return layer(c, self_attn=self_attn, mlp=gated_mlp(c))


def tower(
    c: Config,
    width: Dim,
    *,
    norm: Callable[[Dim], Module],
    mlp: Callable[[], Module],
    bias: bool = False,
) -> dict[str, Block]:
    """Return the tower's blocks and its patch embedding, which spans a few frames."""

    def block() -> Module:
        attn = module(qkv=Linear(width, 3 * width), proj=Linear(width, width))
        return module(norm1=norm(width), norm2=norm(width), attn=attn, mlp=mlp())

    kernel = (c.dim("temporal_patch_size"), c.dim("patch_size"), c.dim("patch_size"))
    patches = Conv(c.dim("in_channels"), width, kernel, bias=bias)
    return {
        "patch_embed": module(proj=patches),
        "blocks": repeat(c.dim("depth"), block),
    }


def merged(c: Config, width: Dim) -> Dim:
    """Return the width of the vector that concatenates those of a square of patches."""
    return width * c.dim("spatial_merge_size") * c.dim("spatial_merge_size")


def merger(norm: Module, wide: Dim, out: Dim) -> Module:
    return module(ln_q=norm, mlp=sequential(Linear(wide, wide), None, Linear(wide, out)))


def visual(c: Config) -> Module:
    D = c.dim("embed_dim")
    return module(
        **tower(c, D, norm=LayerNorm, mlp=partial(vision_mlp, c)),
        merger=merger(LayerNorm(D), merged(c, D), c.dim("hidden_size")),
    )


def vision_mlp(c: Config) -> Module:
    D, F = c.dim("embed_dim"), c.dim("mlp_ratio") * c.dim("embed_dim")
    return module(fc1=Linear(D, F), fc2=Linear(F, D), act=activation(c))


# --- the configs -------------------------------------------------------------------------------


_TEXT = "text_config"


@derived_defaults("Qwen2VLConfig", "Qwen2_5_VLConfig")
def gather(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set `text_config` from the keys of the outer level, if the config does not have it."""
    if config[_TEXT] is not None:
        return
    kind = of_name(config.kind.parts[_TEXT].class_name or "")
    fields = kind.fields if kind else {}
    stated = {key: others.pop(key) for key in list(others) if key in fields}
    config.values[_TEXT] = completed_beside(config, _TEXT, stated)


derived_defaults("Qwen2VLTextConfig", "Qwen2_5_VLTextConfig")(_configs.key_value_heads)


register(QWEN2_VL, TEXT, VISION, visual)

QWEN2_VL_RENAMES: Renames = (
    ("^visual", "model.visual"),
    (r"^model(?!\.(language_model|visual))", "model.language_model"),
)
QWEN2_VL_MODEL_RENAMES: Renames = (
    (r"^model\.(?:(?!language_model\.))(.+)", r"model.language_model.\1"),
)
loads("qwen2_vl", LoadingFacts(inside=(("language_model", "text_config", "qwen2_vl_text"),)))
loads("qwen2_vl_text", LoadingFacts(rotary=True))
loads("Qwen2VLForConditionalGeneration", LoadingFacts(rules=QWEN2_VL_RENAMES))
loads("Qwen2VLModel", LoadingFacts(rules=QWEN2_VL_MODEL_RENAMES))


# --- Qwen2.5-VL -----------------------------------------------------------------------------------

# https://arxiv.org/abs/2502.13923: Qwen2-VL with a tower made of Llama's blocks.

QWEN2_5_VL_TEXT = replace(TEXT, model_type="qwen2_5_vl_text", base="Qwen2_5_VLTextModel")
QWEN2_5_VL_VISION = Family(
    model_type="qwen2_5_vl_vision",
    prefix="model",
    base="Qwen2_5_VisionTransformerPretrainedModel",
    keys=(
        "depth hidden_size intermediate_size in_channels patch_size spatial_merge_size "
        "temporal_patch_size out_hidden_size"
    ),
    letters=MappingProxyType({"out_hidden_size": "O", "spatial_merge_size": "m"}),
)
QWEN2_5_VL = replace(QWEN2_VL, model_type="qwen2_5_vl", base="Qwen2_5_VLModel")


def qwen2_5_vl_visual(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        **tower(c, D, norm=RMSNorm, mlp=partial(gated_mlp, c, bias=True)),
        merger=merger(RMSNorm(D), merged(c, D), c.dim("out_hidden_size")),
    )


register(QWEN2_5_VL, QWEN2_5_VL_TEXT, QWEN2_5_VL_VISION, qwen2_5_vl_visual)

loads("qwen2_5_vl", LoadingFacts(inside=(("language_model", "text_config", "qwen2_5_vl_text"),)))
loads("qwen2_5_vl_text", LoadingFacts(rotary=True))
loads("Qwen2_5_VLForConditionalGeneration", LoadingFacts(rules=QWEN2_VL_RENAMES))
loads("Qwen2_5_VLModel", LoadingFacts(rules=QWEN2_VL_MODEL_RENAMES))
