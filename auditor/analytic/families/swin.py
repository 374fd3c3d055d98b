"""Swin, https://arxiv.org/abs/2103.14030: attention in windows, and stages that double in width."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    LayerNorm,
    Legacy,
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
from auditor.analytic.families._vision import (
    by_stage,
    classifier,
    output_stages,
    patches,
    pixels,
    projection,
)
from auditor.analytic.family import LoadingFacts, Renames, loads

SWIN = Family(
    model_type="swin",
    prefix="swin",
    base="SwinModel",
    keys=(
        "image_size patch_size num_channels embed_dim depths num_heads window_size mlp_ratio "
        "qkv_bias use_absolute_embeddings encoder_stride out_features out_indices"
    ),
    letters=MappingProxyType({"window_size": "W"}),
)


@architecture("SwinModel", SWIN)
def swin_model(c: Config, *, mask: bool = False) -> Module:
    return module(
        embeddings=embeddings(c, mask=mask), encoder=encoder(c), layernorm=LayerNorm(widths(c)[-1])
    )


def widths(c: Config) -> tuple[Dim, ...]:
    return tuple(c.dim("embed_dim") * 2**number for number in range(len(by_stage(c, "depths"))))


def embeddings(c: Config, *, mask: bool) -> Module:
    D = c.dim("embed_dim")
    absolute, places = c.flag("use_absolute_embeddings"), patches(c)
    return module(
        patch_embeddings=module(projection=projection(c, D)),
        mask_token=Param((1, 1, D)) if mask else None,
        position_embeddings=Param((1, places, D)) if absolute else None,
        norm=LayerNorm(D),
    )


def encoder(c: Config) -> Module:
    counts = by_stage(c, "depths")
    stages = zip(
        counts, widths(c), by_stage(c, "num_heads", len(counts), most=len(counts)), strict=False
    )
    layers = [
        module(
            blocks=repeat(count, partial(block, c, width, heads)),
            downsample=downsample(width) if number < len(counts) else None,
        )
        for number, (count, width, heads) in enumerate(stages, start=1)
    ]
    return module(layers=sequential(*layers))


def downsample(width: Dim) -> Module:
    """Return the layer that merges four neighbours into one vector of twice the width."""
    return module(reduction=Linear(4 * width, 2 * width, bias=False), norm=LayerNorm(4 * width))


def block(c: Config, width: Dim, heads: Dim) -> Module:
    inner = c.scaled("mlp_ratio", width)
    return module(
        layernorm_before=LayerNorm(width),
        attention=attention(c, width, heads),
        layernorm_after=LayerNorm(width),
        intermediate=module(dense=Linear(width, inner), activation_fn=activation(c)),
        output=module(dense=Linear(inner, width)),
    )


def attention(c: Config, width: Dim, heads: Dim) -> Module:
    W, bias = c.dim("window_size"), c.flag("qkv_bias")
    distances = 2 * W - 1  # length of one side of the window
    return module(
        self=module(
            relative_position_bias_table=Param((distances * distances, heads)),
            relative_position_index=Legacy((W * W, W * W)),  # stored by transformers 4
            query=Linear(width, width, bias=bias),
            key=Linear(width, width, bias=bias),
            value=Linear(width, width, bias=bias),
        ),
        output=module(dense=Linear(width, width)),
    )


@architecture("SwinForImageClassification", SWIN)
def for_image_classification(c: Config) -> Module:
    return module(swin=swin_model(c), classifier=classifier(c, widths(c)[-1]))


@architecture("SwinForMaskedImageModeling", SWIN)
def for_masked_image_modelling(c: Config) -> Module:
    return module(swin=swin_model(c, mask=True), decoder=pixels(c, widths(c)[-1]))


@architecture("SwinBackbone", SWIN)
def swin_backbone(c: Config) -> Module:
    """Return the backbone, whose final norm alone has the model's prefix on disk."""
    handed = {
        name: LayerNorm(widths(c)[max(number - 1, 0)])  # the stem is as wide as the first stage
        for name, number in output_stages(c, len(widths(c))).items()
    }
    return module(
        embeddings=embeddings(c, mask=False),
        encoder=encoder(c),
        swin=module(layernorm=LayerNorm(widths(c)[-1])),
        hidden_states_norms=module(**handed),
    )


_RENAMES: Renames = (
    ("attention.self.query", "attention.q_proj"),
    ("attention.self.key", "attention.k_proj"),
    ("attention.self.value", "attention.v_proj"),
    (
        "attention.self.relative_position_bias_table",
        "attention.relative_position_bias.relative_position_bias_table",
    ),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
loads(
    "swin",
    LoadingFacts(
        rules=_RENAMES,
        silent=(
            r"attention\.self\.relative_position_index",
            r"attention\.relative_position_bias\.relative_position_index",
        ),
    ),
)
loads(
    "SwinBackbone",
    LoadingFacts(
        rules=((r"^encoder\.", "swin.encoder."), (r"^embeddings\.", "swin.embeddings.")),
        unmissed=("swin.layernorm.*",),
    ),
)
