"""CLIP, https://arxiv.org/abs/2103.00020: a text tower and a vision tower that meet in one space.

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
from auditor.analytic.config_classes import Settled, config_rules
from auditor.analytic.config_classes.base import settled_part
from auditor.analytic.config_classes.declarations import of_name
from auditor.analytic.families import _configs
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


def towers(config: Settled, others: dict[str, Any]) -> None:
    """An older key of a tower's config beats the newer, whatever that has."""
    for name in ("text", "vision"):
        key, older = f"{name}_config", others.pop(f"{name}_config_dict", None)
        if older is None:
            continue
        part = config.kind.parts[key]
        stated = config.values[key] or {}
        with config.working_with(key):
            known = of_name(part.class_name or "")
            kept = {k: v for k, v in stated.items() if known is None or k not in known.fields}
            config.values[key] = settled_part(config, key, part, {**kept, **older})


config_rules("CLIPConfig", first=towers)
config_rules("CLIPTextConfig", "CLIPVisionConfig", architecture=_configs.even_heads)


def part(c: Config, name: str, family: Family) -> Config:
    """The config of one tower; an older `text_config_dict` beats `text_config` altogether."""
    key, older = f"{name}_config", f"{name}_config_dict"
    found = c.nested(older if c.states(older) else key, family)
    return replace(found, settled=c.settled.part(key) if c.settled else None)


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
        encoder=encoder(c, even=False),
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
        pre_layrnorm=LayerNorm(D),  # spelt so
        encoder=encoder(c, even=False),
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
