"""ViT, https://arxiv.org/abs/2010.11929: an image as patches after a class token; and DeiT."""

from functools import partial
from typing import Any

from auditor.analytic.activations import activation
from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.families._decoder import head_dim
from auditor.analytic.families._vision import classifier, patches, pixels, projection
from auditor.analytic.family import LoadingFacts, Renames, loads

VIT = Family(
    model_type="vit",
    prefix="vit",
    base="ViTModel",
    keys=(
        "hidden_size num_hidden_layers num_attention_heads intermediate_size image_size "
        "patch_size num_channels qkv_bias encoder_stride pooler_output_size"
    ),
)


@architecture("ViTModel", VIT)
def vit_model(
    c: Config, *, pooler: bool = True, mask: bool = False, distilled: bool = False
) -> Module:
    D = c.dim("hidden_size")
    stated = c.optional("pooler_output_size")
    pooled = stated if stated is not None and stated.value else D
    return module(
        embeddings=embeddings(c, mask=mask, distilled=distilled),
        encoder=module(layer=repeat(c.dim("num_hidden_layers"), partial(encoder_layer, c))),
        layernorm=LayerNorm(D),
        pooler=module(dense=Linear(D, pooled), activation=activation(c, "pooler_act"))
        if pooler
        else None,
    )


def embeddings(c: Config, *, mask: bool, distilled: bool) -> Module:
    """Return the embeddings; `distilled` adds the second token of DeiT."""
    D, token = c.dim("hidden_size"), Param((1, 1, c.dim("hidden_size")))
    places = (1, patches(c) + (2 if distilled else 1), D)
    return module(
        cls_token=token,
        distillation_token=token if distilled else None,
        mask_token=token if mask else None,
        position_embeddings=Param(places, drawn=not distilled),
        patch_embeddings=module(projection=projection(c, D)),
    )


def encoder_layer(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        attention=attention(c),
        intermediate=module(dense=Linear(D, F), activation_fn=activation(c)),
        output=module(dense=Linear(F, D)),
        layernorm_before=LayerNorm(D),
        layernorm_after=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D, H, bias = c.dim("hidden_size"), c.dim("num_attention_heads"), c.flag("qkv_bias")
    width = head_dim(c)
    inner = H * width  # equal to D if the heads divide D
    return module(
        attention=module(
            query=Linear(D, inner, bias=bias),
            key=Linear(D, inner, bias=bias),
            value=Linear(D, inner, bias=bias),
        ),
        output=module(dense=Linear(inner, D)),
    )


@architecture("ViTForImageClassification", VIT)
def for_image_classification(c: Config) -> Module:
    head = classifier(c, c.dim("hidden_size"))
    return module(vit=vit_model(c, pooler=False), classifier=head)


@architecture("ViTForMaskedImageModeling", VIT)
def for_masked_image_modelling(c: Config) -> Module:
    decoder = pixels(c, c.dim("hidden_size"))
    return module(vit=vit_model(c, pooler=False, mask=True), decoder=decoder)


@derived_defaults("ViTConfig", "DeiTConfig")
def pooler_width(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the pooler's width to the model's, if the config has null."""
    del others
    config.set("pooler_output_size", config["pooler_output_size"] or config["hidden_size"])


VIT_RENAMES: Renames = (
    (r"encoder\.layer\.", "layers."),
    ("attention.query", "q_proj"),
    ("attention.key", "k_proj"),
    ("attention.value", "v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
loads("ViTModel", LoadingFacts(rules=VIT_RENAMES))


# --- DeiT -----------------------------------------------------------------------------------------

# https://arxiv.org/abs/2012.12877: a ViT with a token that learns from a teacher.

DEIT = Family(
    model_type="deit",
    prefix="deit",
    base="DeiTModel",
    keys=VIT.keys,
)


@architecture("DeiTModel", DEIT)
def deit_model(c: Config, *, pooler: bool = True, mask: bool = False) -> Module:
    return vit_model(c, pooler=pooler, mask=mask, distilled=True)


@architecture("DeiTForImageClassification", DEIT)
def deit_for_image_classification(c: Config) -> Module:
    head = classifier(c, c.dim("hidden_size"))
    return module(deit=deit_model(c, pooler=False), classifier=head)


@architecture("DeiTForImageClassificationWithTeacher", DEIT)
def for_image_classification_with_teacher(c: Config) -> Module:
    head = classifier(c, c.dim("hidden_size"))
    return module(
        deit=deit_model(c, pooler=False), cls_classifier=head, distillation_classifier=head
    )


@architecture("DeiTForMaskedImageModeling", DEIT)
def deit_for_masked_image_modelling(c: Config) -> Module:
    decoder = pixels(c, c.dim("hidden_size"))
    return module(deit=deit_model(c, pooler=False, mask=True), decoder=decoder)


loads("DeiTModel", LoadingFacts(rules=VIT_RENAMES))
