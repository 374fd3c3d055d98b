"""DETR, https://arxiv.org/abs/2005.12872: a ResNet, and a Transformer from queries to boxes."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv,
    Embedding,
    FrozenBatchNorm,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Repeat,
    module,
    repeat,
    sequential,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim, dim
from auditor.analytic.families._seq2seq import Side, Style, layer, learned_positions
from auditor.analytic.families._vision import by_stage, output_stages
from auditor.analytic.families.resnet import RESNET, resnet_model
from auditor.analytic.family import LoadingFacts, Renames, loads
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import quoted

# --- the ResNets of timm: torchvision's names, frozen norms --------------------------------------

_DEPTHS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "resnet18": (2, 2, 2, 2),
        "resnet34": (3, 4, 6, 3),
        "resnet50": (3, 4, 6, 3),
        "resnet101": (3, 4, 23, 3),
        "resnet152": (3, 8, 36, 3),
    }
)
_BASIC = frozenset({"resnet18", "resnet34"})  # two convolutions a layer; the rest have three
_STEM = 64


def frozen_resnet(c: Config) -> tuple[Module, tuple[Dim, ...]]:
    """Return the backbone that `backbone` names, and the widths of its four stages.

    Raise SourceError for a model of timm that is not a known ResNet.
    """
    name = c.text("backbone").partition(".")[0]  # resnet50.a1_in1k is a training of resnet50
    if name not in _DEPTHS:
        raise SourceError(
            Reason.UNKNOWN_ARCHITECTURE,
            f"no closed form is known for {c.path}backbone {quoted(name)} of timm",
        )
    basic = name in _BASIC
    inner = [_STEM * 2**number for number in range(len(_DEPTHS[name]))]
    widths = inner if basic else [4 * width for width in inner]
    befores = (_STEM, *widths)
    stages = {
        f"layer{number}": _stage(count, before, width, basic=basic)
        for number, count, before, width in zip(
            (1, 2, 3, 4), _DEPTHS[name], befores, widths, strict=False
        )
    }
    tree = module(
        conv1=_conv(c.dim("num_channels"), _STEM, 7), bn1=FrozenBatchNorm(_STEM), **stages
    )
    return tree, tuple(map(dim, widths))


def _stage(count: int, before: int, width: int, *, basic: bool) -> Module:
    """Return a stage of a ResNet; its first layer changes the width if necessary."""
    first = _layer(before, width, basic=basic, changes=before != width)
    other = _layer(width, width, basic=basic, changes=False)
    return sequential(first, *[other] * (count - 1))


def _layer(before: int, width: int, *, basic: bool, changes: bool) -> Module:
    inner = width if basic else width // 4
    steps = [(before, inner, 3 if basic else 1), (inner, inner, 3), (inner, width, 1)]
    children: dict[str, Module] = {}
    for number, (inputs, outputs, kernel) in enumerate(steps[:2] if basic else steps, start=1):
        children[f"conv{number}"] = _conv(inputs, outputs, kernel)
        children[f"bn{number}"] = FrozenBatchNorm(outputs)
    # facebook/detr-resnet-50 stores num_batches_tracked for these norms only.
    norm = Module((*FrozenBatchNorm(width).children, ("num_batches_tracked", Legacy(()))))
    shortcut = sequential(_conv(before, width, 1), norm)
    return module(**children, downsample=shortcut if changes else None)


def _conv(inputs: Dim | int, outputs: int, kernel: int) -> Module:
    return Conv(inputs, outputs, kernel=(kernel, kernel), bias=False)


# --- the model ----------------------------------------------------------------------------------

DETR = Family(
    model_type="detr",
    prefix="model",
    base="DetrModel",
    keys=(
        "backbone_config num_channels num_queries encoder_layers encoder_ffn_dim "
        "encoder_attention_heads decoder_layers decoder_ffn_dim decoder_attention_heads "
        "d_model position_embedding_type"
    ),
    own=MappingProxyType({"use_timm_backbone": True, "backbone": "resnet50"}),
)
TIMM = Family(
    model_type="timm_backbone",
    prefix="",
    base="",
    own=MappingProxyType({"backbone": "resnet50", "num_channels": 3}),
)

_STYLE = Style(positions=learned_positions)  # unused: a layer has no positions
_POSITIONS = 50  # learned positions along one side of the image
_MASK_STAGES = 3  # stages of the backbone that the mask head uses


@architecture("DetrModel", DETR)
def detr_model(c: Config) -> Module:
    D = c.dim("d_model")
    tree, channels = backbone(c)
    if not channels:
        key = f"{c.path}backbone_config.out_features"
        raise CheckpointError(f"{key} selects no stage, expected one or more", key)
    return module(
        backbone=module(conv_encoder=module(model=tree)),
        position_embedding=positions(c),
        query_position_embeddings=Embedding(c.dim("num_queries"), D),
        input_projection=Conv(channels[-1], D, kernel=(1, 1)),
        encoder=module(layers=layers(c, "encoder")),
        decoder=module(layers=layers(c, "decoder"), layernorm=LayerNorm(D)),
    )


def backbone(c: Config) -> tuple[Module, tuple[Dim, ...]]:
    """Return the backbone, with frozen norms, and the widths of the stages that it outputs."""
    inner = c.nested("backbone_config", RESNET)
    model_type = inner.model_type
    if not c.states("backbone_config"):
        if c.flag("use_timm_backbone"):
            return frozen_resnet(c)
        model_type = "resnet"
    match model_type:
        case "timm_backbone":
            return frozen_resnet(c.nested("backbone_config", TIMM))
        case "resnet":
            widths = (inner.dim("embedding_size"), *by_stage(inner, "hidden_sizes"))
            stages = output_stages(inner, len(by_stage(inner, "depths"))).values()
            if max(stages, default=0) >= len(widths) or len(inner.dims("depths")) >= len(widths):
                key = f"{inner.path}hidden_sizes"
                raise CheckpointError(f"{key} has {len(widths) - 1} items, fewer than depths", key)
            tree = resnet_model(inner, norm=FrozenBatchNorm)
            return tree, tuple(widths[number] for number in stages)
    raise SourceError(
        Reason.UNKNOWN_ARCHITECTURE,
        f"no closed form is known for DETR with a backbone {quoted(str(model_type))}",
    )


def positions(c: Config) -> Module | None:
    match c.text("position_embedding_type"):
        case "sine":
            return None
        case "learned":
            side = Embedding(_POSITIONS, c.dim("d_model").floor(2))
            return module(row_embeddings=side, column_embeddings=side)
    key = f"{c.path}position_embedding_type"
    raise CheckpointError(f"{key} is neither sine nor learned", key)


def layers(c: Config, side: Side) -> Repeat:
    return repeat(c.dim(f"{side}_layers"), partial(layer, c, side, _STYLE))


@architecture("DetrForObjectDetection", DETR)
def for_object_detection(c: Config) -> Module:
    D = c.dim("d_model")
    boxes = sequential(Linear(D, D), Linear(D, D), Linear(D, 4))
    return module(
        model=detr_model(c),
        class_labels_classifier=Linear(D, c.num_labels + 1),  # one more for "no object"
        bbox_predictor=module(layers=boxes),
    )


@architecture("DetrForSegmentation", DETR)
def for_segmentation(c: Config) -> Module:
    D = c.dim("d_model")
    return module(
        detr=for_object_detection(c),
        mask_head=mask_head(c),
        bbox_attention=module(q_linear=Linear(D, D), k_linear=Linear(D, D)),
    )


def mask_head(c: Config) -> Module:
    """Return five narrowing convolutions, and adapters of the first stages in reverse order."""
    D = c.dim("d_model")
    seen = D + c.dim("encoder_attention_heads")
    stages = backbone(c)[1][:_MASK_STAGES]
    if len(stages) < _MASK_STAGES:
        key = f"{c.path}backbone_config.out_features"
        count = f"{key} selects {len(stages)} stages"
        raise CheckpointError(f"{count}, expected {_MASK_STAGES}", key)
    widths = [seen, seen, D.floor(2), D.floor(4), D.floor(8), D.floor(16)]
    children: dict[str, Module] = {}
    for number, (before, width) in enumerate(pairwise(widths), start=1):
        children[f"lay{number}"] = Conv(before, width, kernel=(3, 3))
        children[f"gn{number}"] = LayerNorm(width)
    for number, width in enumerate(reversed(stages), start=1):
        children[f"adapter{number}"] = Conv(width, widths[number + 1], kernel=(1, 1))
    act = activation(c, "activation_function")
    return module(**children, activation=act, out_lay=Conv(widths[-1], 1, kernel=(3, 3)))


_RENAMES: Renames = (
    ("backbone.conv_encoder", "backbone"),
    ("out_proj", "o_proj"),
    (r"layers.(\d+).fc1", r"layers.\1.mlp.fc1"),
    (r"layers.(\d+).fc2", r"layers.\1.mlp.fc2"),
)
_RENAMES_OF_MASKS: Renames = (
    ("bbox_attention.q_linear", "bbox_attention.q_proj"),
    ("bbox_attention.k_linear", "bbox_attention.k_proj"),
    ("mask_head.lay1", "mask_head.conv1.conv"),
    ("mask_head.gn1", "mask_head.conv1.norm"),
    ("mask_head.lay2", "mask_head.conv2.conv"),
    ("mask_head.gn2", "mask_head.conv2.norm"),
    ("mask_head.adapter1", "mask_head.fpn_stages.0.fpn_adapter"),
    ("mask_head.lay3", "mask_head.fpn_stages.0.refine.conv"),
    ("mask_head.gn3", "mask_head.fpn_stages.0.refine.norm"),
    ("mask_head.adapter2", "mask_head.fpn_stages.1.fpn_adapter"),
    ("mask_head.lay4", "mask_head.fpn_stages.1.refine.conv"),
    ("mask_head.gn4", "mask_head.fpn_stages.1.refine.norm"),
    ("mask_head.adapter3", "mask_head.fpn_stages.2.fpn_adapter"),
    ("mask_head.lay5", "mask_head.fpn_stages.2.refine.conv"),
    ("mask_head.gn5", "mask_head.fpn_stages.2.refine.norm"),
    ("mask_head.out_lay", "mask_head.output_conv"),
)
loads(
    "detr",
    LoadingFacts(
        silent=(r"detr\.model\.backbone\.model\.layer\d+\.0\.downsample\.1\.num_batches_tracked",),
    ),
)
loads("DetrForSegmentation", LoadingFacts(rules=_RENAMES_OF_MASKS, base_path="detr.model"))
loads("DetrModel", LoadingFacts(rules=_RENAMES))
