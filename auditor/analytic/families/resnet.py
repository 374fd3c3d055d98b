"""ResNet, https://arxiv.org/abs/1512.03385: stages of convolutions, with shortcuts."""

from collections.abc import Callable
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    BatchNorm,
    Conv,
    Module,
    Repeat,
    Stack,
    module,
    sequential,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim, dim
from auditor.analytic.families._vision import by_stage, classifier
from auditor.errors import CheckpointError
from auditor.messages import described

RESNET = Family(
    model_type="resnet",
    prefix="resnet",
    base="ResNetModel",
    keys=(
        "num_channels embedding_size hidden_sizes depths layer_type downsample_in_first_stage "
        "out_features out_indices"
    ),
    letters=MappingProxyType({"embedding_size": "D_stem"}),
)

Norm = Callable[[Dim], Module]


@architecture("ResNetBackbone", RESNET)
@architecture("ResNetModel", RESNET)
def resnet_model(c: Config, *, norm: Norm = BatchNorm) -> Module:
    """Return the model; `norm` follows each convolution, and is frozen in detectors."""
    stem = convolution(c.dim("num_channels"), c.dim("embedding_size"), 7, norm)
    stem = Module((*stem.children, *module(activation=activation(c)).children))
    count = min(len(by_stage(c, "hidden_sizes")), len(by_stage(c, "depths")))
    stages = sequential(*(module(layers=stage(c, number, norm)) for number in range(count)))
    return module(embedder=module(embedder=stem), encoder=module(stages=stages))


def convolution(inputs: Dim, outputs: Dim, kernel: int, norm: Norm) -> Module:
    return module(
        convolution=Conv(inputs, outputs, kernel=(kernel, kernel), bias=False),
        normalization=norm(outputs),
    )


def stage(c: Config, number: int, norm: Norm) -> Repeat | Stack:
    """Return a stage; its first layer changes the width and, except in stage 0, the image size."""
    count = by_stage(c, "depths")[number]
    before, width = (c.dim("embedding_size"), *by_stage(c, "hidden_sizes"))[number : number + 2]
    changes = number or c.flag("downsample_in_first_stage") or before.value != width.value
    shortcut = convolution(before, width, 1, norm) if changes else None

    def build(entry: bool) -> Module:  # noqa: FBT001 - the only difference of layers
        return module(
            shortcut=shortcut if entry else None,
            layer=layer(c, before if entry else width, width, norm),
            activation=activation(c),
        )

    return stack(count if count.value > 0 else dim(1), lambda number: number == 0, build)


def layer(c: Config, before: Dim, width: Dim, norm: Norm) -> Module:
    kind = c.text("layer_type")
    if kind not in ("basic", "bottleneck"):
        what = f"{c.path}layer_type is {described(kind)}"
        raise CheckpointError(f'{what}, expected "basic" or "bottleneck"', f"{c.path}layer_type")
    if kind == "basic":
        return sequential(convolution(before, width, 3, norm), convolution(width, width, 3, norm))
    inner = width.floor(4)
    return sequential(
        convolution(before, inner, 1, norm),
        convolution(inner, inner, 3, norm),
        convolution(inner, width, 1, norm),
    )


@architecture("ResNetForImageClassification", RESNET)
def for_image_classification(c: Config) -> Module:
    head = sequential(None, classifier(c, by_stage(c, "hidden_sizes")[-1]))
    return module(resnet=resnet_model(c), classifier=head)
