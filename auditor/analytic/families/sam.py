"""SAM, https://arxiv.org/abs/2304.02643: an image encoder, a prompt encoder and a mask decoder."""

from functools import partial
from typing import Any

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv,
    ConvTranspose,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    Repeat,
    Tied,
    module,
    repeat,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim, dim
from auditor.analytic.families._vision import projection

SAM = Family(
    model_type="sam",
    prefix="sam",
    base="SamModel",
    keys="tie_word_embeddings",
)
PROMPT_ENCODER = Family(
    model_type="sam_prompt_encoder",
    prefix="",
    base="",
    keys="hidden_size mask_input_channels num_point_embeddings",
)
MASK_DECODER = Family(
    model_type="sam_mask_decoder",
    prefix="",
    base="",
    keys=(
        "hidden_size mlp_dim num_hidden_layers num_attention_heads attention_downsample_rate "
        "num_multimask_outputs iou_head_depth iou_head_hidden_dim"
    ),
)


@architecture("SamModel", SAM)
def sam_model(c: Config) -> Module:
    vision = c.nested("vision_config", SAM_VISION)
    positions = Param((2, vision.dim("num_pos_feats")))
    tied = Tied("shared_image_embedding.positional_embedding")
    shared = tied if c.flag("tie_word_embeddings") else positions
    prompts = prompt_encoder(c.nested("prompt_encoder_config", PROMPT_ENCODER))
    return module(
        shared_image_embedding=module(positional_embedding=positions),
        vision_encoder=vision_encoder(vision),
        prompt_encoder=module(shared_embedding=module(positional_embedding=shared), **prompts),
        mask_decoder=mask_decoder(c.nested("mask_decoder_config", MASK_DECODER)),
    )


def prompt_encoder(c: Config) -> dict[str, Module | Repeat]:
    D, M = c.dim("hidden_size"), c.dim("mask_input_channels")
    quarter = M.floor(4)
    point = Embedding(1, D)
    return {
        "mask_embed": module(
            activation=activation(c),
            conv1=Conv(1, quarter, kernel=(2, 2)),
            conv2=Conv(quarter, M, kernel=(2, 2)),
            conv3=Conv(M, D, kernel=(1, 1)),
            layer_norm1=LayerNorm(quarter),
            layer_norm2=LayerNorm(4 * quarter),
        ),
        "no_mask_embed": point,
        "point_embed": repeat(c.dim("num_point_embeddings"), lambda: point),
        "not_a_point_embed": point,
    }


def mask_decoder(c: Config) -> Module:
    D, masks = c.dim("hidden_size"), c.dim("num_multimask_outputs") + 1
    quarter, eighth = D.floor(4), D.floor(4).floor(2)
    last = attention(c, D.floor(c.dim("attention_downsample_rate")))
    return module(
        iou_token=Embedding(1, D),
        mask_tokens=Embedding(masks, D),
        transformer=module(
            layers=repeat(c.dim("num_hidden_layers"), partial(two_way_layer, c)),
            final_attn_token_to_image=last,
            layer_norm_final_attn=LayerNorm(D),
        ),
        upscale_conv1=ConvTranspose(D, quarter, kernel=(2, 2)),
        upscale_conv2=ConvTranspose(quarter, eighth, kernel=(2, 2)),
        upscale_layer_norm=LayerNorm(quarter),
        output_hypernetworks_mlps=repeat(masks, lambda: head(D, D, eighth, dim(3))),
        iou_prediction_head=head(D, c.dim("iou_head_hidden_dim"), masks, c.dim("iou_head_depth")),
    )


def two_way_layer(c: Config) -> Module:
    D = c.dim("hidden_size")
    across = attention(c, D.floor(2))  # whatever attention_downsample_rate is
    norms = {f"layer_norm{number}": LayerNorm(D) for number in range(1, 5)}
    return module(
        self_attn=attention(c, D),
        cross_attn_token_to_image=across,
        cross_attn_image_to_token=across,
        mlp=mlp(c, D, c.dim("mlp_dim")),
        **norms,
    )


def attention(c: Config, inner: Dim) -> Module:
    D = c.dim("hidden_size")
    towards = {name: Linear(D, inner) for name in ("q_proj", "k_proj", "v_proj")}
    return module(**towards, out_proj=Linear(inner, D))


def head(inputs: Dim, hidden: Dim, outputs: Dim, depth: Dim) -> Module:
    """Return a feed-forward network of `depth` layers, at least two."""
    ends = 2
    between = depth - ends if depth.value > ends else dim(0)
    return module(
        proj_in=Linear(inputs, hidden),
        proj_out=Linear(hidden, outputs),
        layers=repeat(between, lambda: Linear(hidden, hidden)),
    )


# --- SAM's image encoder --------------------------------------------------------------------------

# https://arxiv.org/abs/2304.02643: a ViT in which few layers attend to the whole image.

SAM_VISION = Family(
    model_type="sam_vision_model",
    prefix="sam",
    base="SamVisionModel",
    keys=(
        "hidden_size output_channels num_hidden_layers num_attention_heads num_channels "
        "image_size patch_size qkv_bias mlp_ratio use_abs_pos use_rel_pos window_size "
        "global_attn_indexes num_pos_feats mlp_dim"
    ),
)


@architecture("SamVisionModel", SAM_VISION)
def sam_vision_model(c: Config) -> Module:
    return module(vision_encoder=vision_encoder(c))


def vision_encoder(c: Config) -> Module:
    D, O = c.dim("hidden_size"), c.dim("output_channels")
    side = partial(patches_of_a_side, c)
    global_layers = frozenset(
        c.integers("global_attn_indexes")
    )  # the others attend to a window only

    def layer(everywhere: bool) -> Module:  # noqa: FBT001 - the only difference of layers
        window = c.dim("window_size")
        return vision_layer(c, side() if everywhere or not window.value else window)

    return module(
        pos_embed=Param((1, side(), side(), D)) if c.flag("use_abs_pos") else None,
        patch_embed=module(projection=projection(c, D)),
        layers=stack(c.dim("num_hidden_layers"), lambda number: number in global_layers, layer),
        neck=module(
            conv1=Conv(D, O, kernel=(1, 1), bias=False),
            layer_norm1=LayerNorm(O),
            conv2=Conv(O, O, kernel=(3, 3), bias=False),
            layer_norm2=LayerNorm(O),
        ),
    )


def patches_of_a_side(c: Config) -> Dim:
    return c.dim("image_size").floor(c.dim("patch_size"))


def vision_layer(c: Config, side: Dim) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    distances = Param((2 * side - 1, D.floor(H)))
    relative = c.flag("use_rel_pos")
    return module(
        layer_norm1=LayerNorm(D),
        attn=module(
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


@derived_defaults("SamVisionConfig")
def inner_size(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the width of the feed-forward if the config's value is null."""
    del others
    if config["mlp_dim"] is None:
        config.set("mlp_dim", int(config["hidden_size"] * config["mlp_ratio"]))
