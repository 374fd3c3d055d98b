"""SigLIP, https://arxiv.org/abs/2303.15343: CLIP's towers, compared by a sigmoid."""

from typing import Any

from auditor.analytic.blocks import (
    Conv,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.families._towers import (
    classifier,
    encoder,
    load_two_towers,
    mlp,
    patches,
    text_embeddings,
)

TEXT = Family(
    model_type="siglip_text_model",
    prefix="text_model",
    base="SiglipTextModel",
    keys=(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "max_position_embeddings projection_size"
    ),
)
VISION = Family(
    model_type="siglip_vision_model",
    prefix="vision_model",
    base="SiglipVisionModel",
    keys=(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads num_channels "
        "image_size patch_size vision_use_head"
    ),
)
SIGLIP = Family(
    model_type="siglip",
    prefix="siglip",
    base="SiglipModel",
)


@architecture("SiglipModel", SIGLIP)
def siglip_model(c: Config) -> Module:
    return module(
        logit_scale=Param((1,)),
        logit_bias=Param((1,)),
        text_model=text_model(c.nested("text_config", TEXT)),
        vision_model=vision_model(c.nested("vision_config", VISION)),
    )


@architecture("SiglipForImageClassification", SIGLIP)
def for_image_classification(c: Config) -> Module:
    vision = c.nested("vision_config", VISION)
    return module(vision_model=vision_model(vision), classifier=classifier(c, vision))


@architecture("SiglipTextModel", TEXT)
def text_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        embeddings=text_embeddings(c),
        encoder=encoder(c),
        final_layer_norm=LayerNorm(D),
        head=Linear(D, c.optional("projection_size") or D),
    )


@architecture("SiglipVisionModel", VISION)
def vision_model(c: Config) -> Module:
    D, P = c.dim("hidden_size"), c.dim("patch_size")
    return module(
        embeddings=module(
            patch_embedding=Conv(c.dim("num_channels"), D, kernel=(P, P)),
            position_embedding=Embedding(patches(c), D),
        ),
        encoder=encoder(c),
        post_layernorm=LayerNorm(D),
        head=pooling_head(c) if c.flag("vision_use_head") else None,
    )


def pooling_head(c: Config) -> Module:
    """Return attention from one learned query to all patches, with torch's fused weights."""
    D = c.dim("hidden_size")
    return module(
        probe=Param((1, 1, D)),
        attention=module(
            in_proj_weight=Param((3 * D, D)), in_proj_bias=Param((3 * D,)), out_proj=Linear(D, D)
        ),
        layernorm=LayerNorm(D),
        mlp=mlp(c),
    )


@derived_defaults("SiglipTextConfig")
def projection_width(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the projection's width to the model's if the config's value is null."""
    del others
    if config["projection_size"] is None:
        config.set("projection_size", config["hidden_size"])


load_two_towers("siglip", "Siglip")
