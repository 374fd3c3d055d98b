"""ConvNeXt, https://arxiv.org/abs/2201.03545: a convolutional net with traits of Transformers."""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    repeat,
    sequential,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._vision import by_stage, classifier, output_stages, projection

CONVNEXT = Family(
    model_type="convnext",
    prefix="convnext",
    base="ConvNextModel",
    keys=(
        "num_channels patch_size num_stages hidden_sizes depths layer_scale_init_value "
        "out_features out_indices"
    ),
)


@architecture("ConvNextModel", CONVNEXT)
def convnext_model(c: Config) -> Module:
    return module(embeddings=embeddings(c), encoder=encoder(c), layernorm=LayerNorm(last(c)))


def last(c: Config) -> Dim:
    return by_stage(c, "hidden_sizes")[-1]


def embeddings(c: Config) -> Module:
    D = by_stage(c, "hidden_sizes")[0]
    return module(patch_embeddings=projection(c, D), layernorm=LayerNorm(D))


def encoder(c: Config) -> Module:
    count = max(c.integer("num_stages"), 0)
    widths, counts = by_stage(c, "hidden_sizes", count), by_stage(c, "depths", count)
    stages = [
        module(
            downsampling_layer=downsample(before, width) if before else None,
            layers=repeat(layers, partial(block, c, width)),
        )
        for before, width, layers in zip((None, *widths), widths, counts[:count], strict=False)
    ]
    return module(stages=sequential(*stages))


def downsample(before: Dim, width: Dim) -> Module:
    return sequential(LayerNorm(before), Conv(before, width, kernel=(2, 2)))


def block(c: Config, width: Dim) -> Module:
    scaled = c.real("layer_scale_init_value") > 0
    return module(
        layer_scale_parameter=Param((width,)) if scaled else None,
        dwconv=Conv(width, width, kernel=(7, 7), groups=width),
        act=activation(c),
        layernorm=LayerNorm(width),
        pwconv1=Linear(width, 4 * width),
        pwconv2=Linear(4 * width, width),
    )


@architecture("ConvNextForImageClassification", CONVNEXT)
def for_image_classification(c: Config) -> Module:
    return module(convnext=convnext_model(c), classifier=classifier(c, last(c)))


@architecture("ConvNextBackbone", CONVNEXT)
def convnext_backbone(c: Config) -> Module:
    """Return the backbone, which has a norm for each output stage and no final norm."""
    count = len(by_stage(c, "depths"))
    widths = by_stage(c, "hidden_sizes", count)
    handed = {
        name: LayerNorm(widths[max(number - 1, 0)])  # the stem is as wide as the first stage
        for name, number in output_stages(c, count).items()
    }
    return module(
        embeddings=embeddings(c),
        encoder=encoder(c),
        hidden_states_norms=module(**handed),
    )
