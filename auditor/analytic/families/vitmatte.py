"""ViTMatte, https://arxiv.org/abs/2305.15272: a ViT for detection, and convolutions for details.

The ViT is VitDet, https://arxiv.org/abs/2203.16527, in which most layers attend to windows.
"""

from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    BatchNorm,
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    sequential,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._vision import output_stages
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import described

VITDET = Family(
    model_type="vitdet",
    prefix="vitdet",
    base="VitDetModel",
    keys=(
        "hidden_size num_hidden_layers num_attention_heads mlp_ratio image_size "
        "pretrain_image_size patch_size num_channels qkv_bias window_block_indices "
        "residual_block_indices use_absolute_position_embeddings "
        "use_relative_position_embeddings window_size out_features out_indices"
    ),
)
VITMATTE = Family(
    model_type="vitmatte",
    prefix="",
    base="VitMatteForImageMatting",
    keys="backbone_config hidden_size convstream_hidden_sizes fusion_hidden_sizes",
    letters=MappingProxyType({"convstream_hidden_sizes": "C", "fusion_hidden_sizes": "W"}),
)


class _Kind(NamedTuple):
    """The parts of a layer that differ between layers."""

    has_window: bool
    has_residual: bool


@architecture("VitDetModel", VITDET)
def vitdet_model(c: Config) -> Module:
    D, sides = c.dim("hidden_size"), c.pair("patch_size")
    height, width = patches(c, "pretrain_image_size")
    positions = Param((1, height * width + 1, D))
    windows, residuals = c.integers("window_block_indices"), c.integers("residual_block_indices")

    def kind(number: int) -> _Kind:
        return _Kind(number in windows, number in residuals)

    return module(
        embeddings=module(
            position_embeddings=positions if c.flag("use_absolute_position_embeddings") else None,
            projection=Conv(c.dim("num_channels"), D, kernel=sides),
        ),
        encoder=module(
            layer=stack(c.dim("num_hidden_layers"), kind, lambda kind: layer(c, kind)),
        ),
    )


@architecture("VitDetBackbone", VITDET)
def vitdet_backbone(c: Config) -> Module:
    output_stages(c, c.integer("num_hidden_layers"))
    return vitdet_model(c)


def patches(c: Config, key: str) -> tuple[Dim, Dim]:
    """Return the number of complete patches along both sides of an image."""
    (height, width), (rows, columns) = c.pair(key), c.pair("patch_size")
    return height.floor(rows), width.floor(columns)


def layer(c: Config, kind: _Kind) -> Module:
    D = c.dim("hidden_size")
    F = c.integer("mlp_ratio") * D
    return module(
        norm1=LayerNorm(D),
        attention=attention(c, has_window=kind.has_window),
        norm2=LayerNorm(D),
        mlp=module(fc1=Linear(D, F), act=activation(c), fc2=Linear(F, D)),
        residual=bottleneck(c) if kind.has_residual else None,
    )


def attention(c: Config, *, has_window: bool) -> Module:
    D = c.dim("hidden_size")
    positions: dict[str, Param] = {}
    if c.flag("use_relative_position_embeddings"):
        head, window = D.floor(c.dim("num_attention_heads")), c.dim("window_size")
        is_within = has_window and window.value != 0
        height, width = (window, window) if is_within else patches(c, "image_size")
        positions = {
            "rel_pos_h": Param((2 * height - 1, head)),
            "rel_pos_w": Param((2 * width - 1, head)),
        }
    return module(qkv=Linear(D, 3 * D, bias=c.flag("qkv_bias")), proj=Linear(D, D), **positions)


def bottleneck(c: Config) -> Module:
    D = c.dim("hidden_size")
    half = D.floor(2)
    return module(
        conv1=Conv(D, half, kernel=(1, 1), bias=False),
        norm1=LayerNorm(half),
        act1=activation(c),
        conv2=Conv(half, half, kernel=(3, 3), bias=False),
        norm2=LayerNorm(half),
        act2=activation(c),
        conv3=Conv(half, D, kernel=(1, 1), bias=False),
        norm3=LayerNorm(D),
    )


# --- ViTMatte -------------------------------------------------------------------------------------

_HEAD = 16  # channels between the two convolutions of the head


@architecture("VitMatteForImageMatting", VITMATTE)
def for_image_matting(c: Config) -> Module:
    inner = c.nested("backbone_config", VITDET)
    if c.states("backbone_config") and inner.model_type not in {None, "vitdet"}:
        what = f"VitMatteForImageMatting over {described(inner.model_type)}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, f"no closed form is known for {what}")
    stream, fused = c.dims("convstream_hidden_sizes"), c.dims("fusion_hidden_sizes")
    if len(fused) != len(stream) + 1:
        expected = f"expected {len(stream) + 1}: one more than convstream_hidden_sizes"
        raise CheckpointError(
            f"{c.path}fusion_hidden_sizes has {len(fused)} items, {expected}",
            f"{c.path}fusion_hidden_sizes",
        )
    details = (inner.dim("num_channels"), *stream)
    blocks = zip(pairwise((c.dim("hidden_size"), *fused)), reversed(details), strict=True)
    head = sequential(
        Conv(fused[-1], _HEAD, kernel=(3, 3)), BatchNorm(_HEAD), None, Conv(_HEAD, 1, kernel=(1, 1))
    )
    return module(
        backbone=vitdet_backbone(inner) if c.states("backbone_config") else vitdet_model(inner),
        decoder=module(
            convstream=module(convs=sequential(*(convolution(*two) for two in pairwise(details)))),
            fusion_blocks=sequential(
                *(
                    module(conv=convolution(before + detail, width))
                    for (before, width), detail in blocks
                )
            ),
            matting_head=module(matting_convs=head),
        ),
    )


def convolution(inputs: Dim, outputs: Dim) -> Module:
    return module(
        conv=Conv(inputs, outputs, kernel=(3, 3), bias=False), batch_norm=BatchNorm(outputs)
    )
