"""CLIP, https://arxiv.org/abs/2103.00020: a text tower and a vision tower with one output space.

On disk the towers are `text_model` and `vision_model`; a tower saved alone has no such prefix.
"""

from typing import Any

from msgspec.structs import replace

from auditor.analytic.blocks import (
    Conv,
    Embedding,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Param,
    module,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.config_classes.completion import completed_part
from auditor.analytic.families._towers import (
    classifier,
    encoder,
    load_two_towers,
    patches,
    text_embeddings,
)

TEXT = Family(
    model_type="clip_text_model",
    prefix="clip",
    base="CLIPTextModel",
    keys=(
        "vocab_size hidden_size intermediate_size projection_dim num_hidden_layers "
        "num_attention_heads max_position_embeddings"
    ),
)
VISION = Family(
    model_type="clip_vision_model",
    prefix="clip",
    base="CLIPVisionModel",
    keys=(
        "hidden_size intermediate_size projection_dim num_hidden_layers num_attention_heads "
        "num_channels image_size patch_size"
    ),
)
CLIP = Family(
    model_type="clip",
    prefix="clip",
    base="CLIPModel",
    keys="projection_dim",
)


@derived_defaults("CLIPConfig")
def older_towers(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set a tower's config from its older key, which takes precedence over the newer key."""
    for name in ("text", "vision"):
        key, older = f"{name}_config", others.pop(f"{name}_config_dict", None)
        if older is None:
            continue
        config.values[key] = completed_part(config, key, config.kind.parts[key], older)


def part(c: Config, name: str, family: Family) -> Config:
    """Return one tower's config; an older `text_config_dict` replaces `text_config`."""
    key, older = f"{name}_config", f"{name}_config_dict"
    tower_config = c.nested(older if c.states(older) else key, family)
    return replace(tower_config, completed=c.completed.part(key) if c.completed else None)


@architecture("CLIPModel", CLIP)
def clip_model(c: Config) -> Module:
    text, vision, shared = part(c, "text", TEXT), part(c, "vision", VISION), c.dim("projection_dim")
    return module(
        logit_scale=Param(()),
        text_model=text_model(text),
        vision_model=vision_model(vision),
        visual_projection=Linear(vision.dim("hidden_size"), shared, bias=False),
        text_projection=Linear(text.dim("hidden_size"), shared, bias=False),
    )


@architecture("CLIPForImageClassification", CLIP)
def for_image_classification(c: Config) -> Module:
    vision = part(c, "vision", VISION)
    return module(vision_model=vision_model(vision), classifier=classifier(c, vision))


@architecture("CLIPTextModel", TEXT)
def text_model(c: Config) -> Module:
    positions = Legacy((1, c.dim("max_position_embeddings")))  # stored up to transformers 4.30
    return module(
        embeddings=text_embeddings(c, position_ids=positions),
        encoder=encoder(c),
        final_layer_norm=LayerNorm(c.dim("hidden_size")),
    )


@architecture("CLIPVisionModel", VISION)
def vision_model(c: Config) -> Module:
    D, P = c.dim("hidden_size"), c.dim("patch_size")
    positions = patches(c) + 1
    return module(
        embeddings=module(
            class_embedding=Param((D,)),
            position_ids=Legacy((1, positions)),  # stored up to transformers 4.30
            patch_embedding=Conv(c.dim("num_channels"), D, kernel=(P, P), bias=False),
            position_embedding=Embedding(positions, D),
        ),
        pre_layrnorm=LayerNorm(D),  # this is its spelling
        encoder=encoder(c),
        post_layernorm=LayerNorm(D),
    )


@architecture("CLIPTextModelWithProjection", replace(TEXT, prefix="text_model"))
def text_with_projection(c: Config) -> Module:
    projection = Linear(c.dim("hidden_size"), c.dim("projection_dim"), bias=False)
    return module(text_model=text_model(c), text_projection=projection)


@architecture("CLIPVisionModelWithProjection", replace(VISION, prefix="vision_model"))
def vision_with_projection(c: Config) -> Module:
    projection = Linear(c.dim("hidden_size"), c.dim("projection_dim"), bias=False)
    return module(vision_model=vision_model(c), visual_projection=projection)


load_two_towers("clip", "CLIP")
