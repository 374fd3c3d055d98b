"""SAM's image encoder, https://arxiv.org/abs/2304.02643: a ViT of which few layers see it all."""

from functools import partial
from types import MappingProxyType
from typing import Any

from auditor.analytic.blocks import Conv, LayerNorm, Linear, Module, Param, module, stack
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules
from auditor.analytic.dims import Dim
from auditor.analytic.families._vision import patches, projection
from auditor.analytic.parts import activation, shares

SAM_VISION = Family(
    model_type="sam_vision_model",
    prefix="sam",
    base="SamVisionModel",
    keys=(
        "hidden_size output_channels num_hidden_layers num_attention_heads num_channels "
        "image_size patch_size qkv_bias mlp_ratio use_abs_pos use_rel_pos window_size "
        "global_attn_indexes num_pos_feats mlp_dim"
    ),
    letters=MappingProxyType({"mlp_dim": "F"}),
)


@architecture("SamVisionModel", SAM_VISION)
def sam_vision_model(c: Config) -> Module:
    return module(vision_encoder=vision_encoder(c))


def vision_encoder(c: Config) -> Module:
    D, O = c.dim("hidden_size"), c.dim("output_channels")
    side = partial(patches_of_a_side, c)
    whole = frozenset(c.integers("global_attn_indexes"))  # the rest look no further than a window

    def layer(everywhere: bool) -> Module:  # noqa: FBT001 - the one thing in which layers differ
        window = c.dim("window_size")
        return vision_layer(c, side() if everywhere or not window.value else window)

    return module(
        pos_embed=Param((1, side(), side(), D)) if c.flag("use_abs_pos") else None,
        patch_embed=patch_embedding(c, D),
        layers=stack(c.dim("num_hidden_layers"), lambda number: number in whole, layer),
        neck=module(
            conv1=Conv(D, O, kernel=(1, 1), bias=False),
            layer_norm1=LayerNorm(O),
            conv2=Conv(O, O, kernel=(3, 3), bias=False),
            layer_norm2=LayerNorm(O),
        ),
    )


def patches_of_a_side(c: Config) -> Dim:
    return c.dim("image_size").floor(c.dim("patch_size"))


def patch_embedding(c: Config, width: Dim) -> Module:
    _ = patches(c)  # which are counted, whatever comes of it
    return module(projection=projection(c, width))


def vision_layer(c: Config, side: Dim) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    distances = Param((2 * side - 1, D.floor(H)))
    relative = c.flag("use_rel_pos")
    return module(
        layer_norm1=LayerNorm(D),
        attn=module(
            heads=shares(c, D, H, even=False),
            rel_pos_h=distances if relative else None,
            rel_pos_w=distances if relative else None,
            qkv=Linear(D, 3 * D, bias=c.flag("qkv_bias")),
            proj=Linear(D, D),
        ),
        layer_norm2=LayerNorm(D),
        mlp=mlp(c, D, c.optional("mlp_dim") or c.scaled("mlp_ratio", D)),
    )


def mlp(c: Config, width: Dim, inner: Dim) -> Module:
    return module(lin1=Linear(width, inner), lin2=Linear(inner, width), act=activation(c))


def first(config: Settled, others: dict[str, Any]) -> None:
    del others
    with config.working_with("hidden_size", "mlp_ratio"):
        if config["mlp_dim"] is None:
            config.set("mlp_dim", int(config["hidden_size"] * config["mlp_ratio"]))
    config.values["scale"] = config["hidden_size"] // 2


config_rules("SamVisionConfig", first=first)
