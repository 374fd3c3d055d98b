"""UNetSpatioTemporalConditionModel (Stable Video Diffusion) and UNetMotionModel (AnimateDiff)."""

from types import MappingProxyType
from typing import cast

from auditor.analytic.blocks import (
    Block,
    Buffer,
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    repeat,
)
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import (
    LibraryForm,
    counts_by_block,
    kinds_by_block,
    outside,
    require,
    size,
    widths,
    widths_by_block,
)
from auditor.analytic.diffusion.layers import (
    GroupNorm,
    Transformers,
    Ways,
    attention,
    feed_forward,
    layers_of,
    resnet,
    time_embedding,
    transformer_block,
)
from auditor.analytic.dims import Dim, counted_dim
from auditor.analytic.family import Family

SPATIO_TEMPORAL = Family(
    model_type="UNetSpatioTemporalConditionModel",
    prefix="",
    base="UNetSpatioTemporalConditionModel",
    own=MappingProxyType(
        {
            "sample_size": None,
            "in_channels": 8,
            "out_channels": 4,
            "down_block_types": (
                *("CrossAttnDownBlockSpatioTemporal",) * 3,
                "DownBlockSpatioTemporal",
            ),
            "up_block_types": ("UpBlockSpatioTemporal", *("CrossAttnUpBlockSpatioTemporal",) * 3),
            "block_out_channels": (320, 640, 1280, 1280),
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 768,
            "layers_per_block": 2,
            "cross_attention_dim": 1024,
            "transformer_layers_per_block": 1,
            "num_attention_heads": (5, 10, 20, 20),
            "num_frames": 25,
        }
    ),
)
MOTION = Family(
    model_type="UNetMotionModel",
    prefix="",
    base="UNetMotionModel",
    own=MappingProxyType(
        {
            "sample_size": None,
            "in_channels": 4,
            "out_channels": 4,
            "down_block_types": (*("CrossAttnDownBlockMotion",) * 3, "DownBlockMotion"),
            "up_block_types": ("UpBlockMotion", *("CrossAttnUpBlockMotion",) * 3),
            "block_out_channels": (320, 640, 1280, 1280),
            "layers_per_block": 2,
            "downsample_padding": 1,
            "mid_block_scale_factor": 1,
            "act_fn": "silu",
            "norm_num_groups": 32,
            "norm_eps": 1e-5,
            "cross_attention_dim": 1280,
            "transformer_layers_per_block": 1,
            "reverse_transformer_layers_per_block": None,
            "temporal_transformer_layers_per_block": 1,
            "reverse_temporal_transformer_layers_per_block": None,
            "transformer_layers_per_mid_block": None,
            "temporal_transformer_layers_per_mid_block": 1,
            "use_linear_projection": False,
            "num_attention_heads": 8,
            "motion_max_seq_length": 32,
            "motion_num_attention_heads": 8,
            "reverse_motion_num_attention_heads": None,
            "use_motion_mid_block": True,
            "mid_block_layers": 1,
            "encoder_hid_dim": None,
            "encoder_hid_dim_type": None,
            "addition_embed_type": None,
            "addition_time_embed_dim": None,
            "projection_class_embeddings_input_dim": None,
            "time_cond_proj_dim": None,
        }
    ),
)


def _temporal_resnet(inputs: Dim, outputs: Dim, time: Dim) -> Module:
    return module(
        spatial_res_block=resnet(inputs, outputs, time),
        temporal_res_block=resnet(outputs, outputs, time, kernel=(3, 1, 1)),
        time_mixer=module(mix_factor=Param((1,))),
    )


def _temporal_transformer(channels: Dim, heads: Dim, depth: int, text: Dim) -> Module:
    """Return a TransformerSpatioTemporalModel: blocks over each image, then over the frames."""
    D = heads * channels.floor(heads)
    over_frames = module(
        norm_in=LayerNorm(D),
        ff_in=feed_forward(D),
        norm1=LayerNorm(D),
        attn1=attention(D),
        norm2=LayerNorm(D),
        attn2=attention(D, text),
        norm3=LayerNorm(D),
        ff=feed_forward(D),
    )
    return module(
        norm=GroupNorm(channels),
        proj_in=Linear(channels, D),
        transformer_blocks=repeat(counted_dim(depth), lambda: transformer_block(D, text)),
        temporal_transformer_blocks=repeat(counted_dim(depth), lambda: over_frames),
        time_pos_embed=time_embedding(channels, 4 * channels, outputs=channels),
        time_mixer=module(mix_factor=Param((1,))),
        proj_out=Linear(D, channels),
    )


def spatio_temporal(c: Config) -> Module:
    channels = widths(c, "block_out_channels")
    count, W = len(channels), channels[0]
    time = 4 * W
    depths = counts_by_block(c, "transformer_layers_per_block", count)
    heads = widths_by_block(c, "num_attention_heads", count)
    texts = widths_by_block(c, "cross_attention_dim", count)

    def transformer(place: int) -> Module:
        return _temporal_transformer(channels[place], heads[place], depths[place], texts[place])

    def parts(place: int, kind: str, inputs: list[Dim]) -> dict[str, Block | None]:
        has_text = kind.startswith("CrossAttn")
        return {
            "attentions": layers_of([transformer(place)] * len(inputs)) if has_text else None,
            "resnets": layers_of([_temporal_resnet(one, channels[place], time) for one in inputs]),
        }

    return module(
        conv_in=Conv(size(c, "in_channels"), W, (3, 3)),
        time_embedding=time_embedding(W, time),
        add_embedding=time_embedding(size(c, "projection_class_embeddings_input_dim"), time),
        **_ways(c, channels).built(parts),
        mid_block=module(
            attentions=layers_of([transformer(-1)]),
            resnets=layers_of([_temporal_resnet(channels[-1], channels[-1], time)] * 2),
        ),
        conv_norm_out=GroupNorm(W),
        conv_out=Conv(W, size(c, "out_channels"), (3, 3)),
    )


def _ways(c: Config, channels: tuple[Dim, ...]) -> Ways:
    count, own = len(channels), cast("Family", c.family).own
    kinds = (
        kinds_by_block(c, key, count, frozenset(cast("tuple[str, ...]", own[key])))
        for key in ("down_block_types", "up_block_types")
    )
    return Ways(channels, counts_by_block(c, "layers_per_block", count), *kinds)


def _over_frames(channels: Dim, heads: Dim, depth: int, frames: Dim) -> Module:
    """Return an AnimateDiffTransformer3D, whose blocks attend twice to the frames."""
    D = heads * channels.floor(heads)
    block = module(
        pos_embed=module(pe=Buffer((1, frames, D))),
        **dict(transformer_block(D, None).children),
    )
    return module(
        norm=GroupNorm(channels),
        proj_in=Linear(channels, D),
        transformer_blocks=repeat(counted_dim(depth), lambda: block),
        proj_out=Linear(D, channels),
    )


def motion_unet(c: Config) -> Module:
    for key in ("transformer_layers_per_block", "temporal_transformer_layers_per_block"):
        require(c, f"reverse_{key}", None)
    require(c, "reverse_motion_num_attention_heads", None)
    require(c, "encoder_hid_dim_type", None)
    require(c, "addition_embed_type", None, "text_time")
    if c.attribute("norm_num_groups") is None:
        raise outside(c, "norm_num_groups")
    channels = widths(c, "block_out_channels")
    count, W = len(channels), channels[0]
    time, frames = 4 * W, size(c, "motion_max_seq_length")
    depths = counts_by_block(c, "transformer_layers_per_block", count)
    over_frames = counts_by_block(c, "temporal_transformer_layers_per_block", count)
    motion_heads = widths_by_block(c, "motion_num_attention_heads", count)
    heads = widths_by_block(c, "num_attention_heads", count)
    texts = widths_by_block(c, "cross_attention_dim", count)
    is_linear = c.flag("use_linear_projection")

    def transformer(place: int, depth: int) -> Module:
        return Transformers(depth, heads[place], texts[place], is_linear).of(channels[place])

    def motion(place: int, depth: int) -> Module:
        return _over_frames(channels[place], motion_heads[place], depth, frames)

    def parts(place: int, kind: str, inputs: list[Dim]) -> dict[str, Block | None]:
        attentions = [transformer(place, depths[place])] * len(inputs)
        return {
            "attentions": layers_of(attentions) if kind.startswith("CrossAttn") else None,
            "resnets": layers_of([resnet(one, channels[place], time) for one in inputs]),
            "motion_modules": layers_of([motion(place, over_frames[place])] * len(inputs)),
        }

    middle = counts_by_block(c, "mid_block_layers", 1)[0]
    mid_depths = [depths[-1]] * middle
    if c.present("transformer_layers_per_mid_block"):
        mid_depths = [*counts_by_block(c, "transformer_layers_per_mid_block", middle)]
    mid_motions = counts_by_block(c, "temporal_transformer_layers_per_mid_block", middle)
    has_motion = c.flag("use_motion_mid_block")
    last = channels[-1]
    conditions = size(c, "time_cond_proj_dim") if c.present("time_cond_proj_dim") else None
    added = None
    if c.present("addition_embed_type"):
        added = time_embedding(size(c, "projection_class_embeddings_input_dim"), time)
    return module(
        conv_in=Conv(size(c, "in_channels"), W, (3, 3)),
        time_embedding=time_embedding(W, time, conditions),
        add_embedding=added,
        **_ways(c, channels).built(parts),
        mid_block=module(
            attentions=layers_of([transformer(-1, depth) for depth in mid_depths]),
            resnets=layers_of([resnet(last, last, time)] * (middle + 1)),
            motion_modules=layers_of([motion(-1, n) for n in mid_motions]) if has_motion else None,
        ),
        conv_norm_out=GroupNorm(W),
        conv_out=Conv(W, size(c, "out_channels"), (3, 3)),
    )


CLASSES = MappingProxyType(
    {
        "UNetSpatioTemporalConditionModel": LibraryForm(SPATIO_TEMPORAL, spatio_temporal),
        "UNetMotionModel": LibraryForm(MOTION, motion_unet),
    }
)
