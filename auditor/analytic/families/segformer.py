"""SegFormer, https://arxiv.org/abs/2105.15203: stages of attention over a shortened sequence."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    BatchNorm,
    Conv,
    LayerNorm,
    Linear,
    Module,
    module,
    repeat,
    sequential,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._vision import by_stage
from auditor.analytic.family import LoadingFacts, Renames, loads

SEGFORMER = Family(
    model_type="segformer",
    prefix="segformer",
    base="SegformerModel",
    keys=(
        "num_channels num_encoder_blocks depths sr_ratios hidden_sizes patch_sizes "
        "num_attention_heads mlp_ratios decoder_hidden_size"
    ),
    letters=MappingProxyType({"num_encoder_blocks": "S", "decoder_hidden_size": "D_decoder"}),
)


@architecture("SegformerModel", SEGFORMER)
def segformer_model(c: Config) -> Module:
    count = max(c.integer("num_encoder_blocks"), 0)
    widths = by_stage(c, "hidden_sizes", count)[:count]
    befores = (c.dim("num_channels"), *widths)
    kernels, counts = by_stage(c, "patch_sizes", count), by_stage(c, "depths", count)
    return module(
        encoder=module(
            patch_embeddings=sequential(*map(patch_embedding, befores, widths, kernels)),
            block=sequential(
                *(
                    repeat(counts[number], partial(layer, c, width, number))
                    for number, width in enumerate(widths)
                )
            ),
            layer_norm=sequential(*map(LayerNorm, widths)),
        )
    )


def patch_embedding(before: Dim, width: Dim, kernel: Dim) -> Module:
    projection = Conv(before, width, kernel=(kernel, kernel))
    return module(proj=projection, layer_norm=LayerNorm(width))


def layer(c: Config, width: Dim, stage: int) -> Module:
    return module(
        layer_norm_1=LayerNorm(width),
        attention=attention(c, width, stage),
        layer_norm_2=LayerNorm(width),
        mlp=feed_forward(c, width, stage),
    )


def attention(c: Config, width: Dim, stage: int) -> Module:
    """Return attention; in most stages a convolution shortens the sequence of keys and values."""
    H = by_stage(c, "num_attention_heads", stage + 1)[stage]
    ratio = by_stage(c, "sr_ratios", stage + 1)[stage]
    inner = H * width.floor(H)  # equal to the width if the heads divide the width
    shortened = ratio.value > 1
    return module(
        self=module(
            query=Linear(width, inner),
            key=Linear(width, inner),
            value=Linear(width, inner),
            sr=Conv(width, width, kernel=(ratio, ratio)) if shortened else None,
            layer_norm=LayerNorm(width) if shortened else None,
        ),
        output=module(dense=Linear(inner, width)),
    )


def feed_forward(c: Config, width: Dim, stage: int) -> Module:
    inner = width * by_stage(c, "mlp_ratios", stage + 1)[stage].value
    return module(
        dense1=Linear(width, inner),
        activation_fn=activation(c),
        dwconv=module(dwconv=Conv(inner, inner, kernel=(3, 3), groups=inner)),
        dense2=Linear(inner, width),
    )


@architecture("SegformerForImageClassification", SEGFORMER)
def for_image_classification(c: Config) -> Module:
    last = by_stage(c, "hidden_sizes")[-1]
    return module(segformer=segformer_model(c), classifier=Linear(last, c.num_labels))


@architecture("SegformerForSemanticSegmentation", SEGFORMER)
def for_semantic_segmentation(c: Config) -> Module:
    count, D = c.dim("num_encoder_blocks"), c.dim("decoder_hidden_size")
    stages = max(count.value, 0)
    widths = by_stage(c, "hidden_sizes", stages)[:stages]
    head = module(
        linear_c=sequential(*(module(proj=Linear(width, D)) for width in widths)),
        linear_fuse=Conv(count * D, D, kernel=(1, 1), bias=False),
        batch_norm=BatchNorm(D),
        classifier=Conv(D, c.num_labels, kernel=(1, 1)),
    )
    return module(segformer=segformer_model(c), decode_head=head)


_RENAMES: Renames = (
    (r"encoder.patch_embeddings.(\d+).", r"stages.\1.patch_embeddings."),
    (r"encoder.block.(\d+).", r"stages.\1.blocks."),
    (r"encoder.layer_norm.(\d+)", r"stages.\1.layer_norm"),
    ("attention.self.query", "attention.q_proj"),
    ("attention.self.key", "attention.k_proj"),
    ("attention.self.value", "attention.v_proj"),
    ("attention.self.sr", "attention.sequence_reduction.sequence_reduction"),
    ("attention.self.layer_norm", "attention.sequence_reduction.layer_norm"),
    ("attention.output.dense", "attention.o_proj"),
    ("mlp.dense1", "mlp.fc1"),
    ("mlp.dense2", "mlp.fc2"),
    ("layer_norm_1", "layernorm_before"),
    ("layer_norm_2", "layernorm_after"),
)
loads(
    "SegformerForSemanticSegmentation",
    LoadingFacts(
        rules=(("decode_head.linear_c", "decode_head.linear_projections"),),
    ),
)
loads("SegformerModel", LoadingFacts(rules=_RENAMES))
