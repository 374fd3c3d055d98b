"""StableCascadeUNet, the prior and the decoder of Stable Cascade."""

from itertools import pairwise
from types import MappingProxyType

from auditor.analytic.blocks import (
    Block,
    Conv,
    ConvTranspose,
    Linear,
    Module,
    Param,
    module,
    sequential,
)
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import (
    MOST_LAYERS,
    LibraryForm,
    counts_by_block,
    outside,
    size,
    widths,
)
from auditor.analytic.diffusion.layers import layers_of
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family

_RES, _TIME, _ATTENTION = "SDCascadeResBlock", "SDCascadeTimestepBlock", "SDCascadeAttnBlock"
CASCADE = Family(
    model_type="StableCascadeUNet",
    prefix="",
    base="StableCascadeUNet",
    letters=MappingProxyType({"conditioning_dim": "X"}),
    own=MappingProxyType(
        {
            "in_channels": 16,
            "out_channels": 16,
            "timestep_ratio_embedding_dim": 64,
            "patch_size": 1,
            "conditioning_dim": 2048,
            "block_out_channels": (2048, 2048),
            "num_attention_heads": (32, 32),
            "down_num_layers_per_block": (8, 24),
            "up_num_layers_per_block": (24, 8),
            "down_blocks_repeat_mappers": (1, 1),
            "up_blocks_repeat_mappers": (1, 1),
            "block_types_per_layer": ((_RES, _TIME, _ATTENTION),) * 2,
            "clip_text_in_channels": None,
            "clip_text_pooled_in_channels": 1280,
            "clip_image_in_channels": None,
            "clip_seq": 4,
            "effnet_in_channels": None,
            "pixel_mapper_in_channels": None,
            "kernel_size": 3,
            "dropout": (0.1, 0.1),
            "self_attn": True,
            "timestep_conditioning_type": ("sca", "crp"),
            "switch_level": None,
        }
    ),
)


def _res_block(c: Config, width: Dim, skipped: Dim | None = None) -> Module:
    K = size(c, "kernel_size")
    scales = Param((1, 1, 1, 4 * width))
    return module(
        depthwise=Conv(width, width, (K, K), groups=width),
        channelwise=sequential(
            Linear(width + skipped if skipped else width, 4 * width),
            None,
            module(gamma=scales, beta=scales),
            None,
            Linear(4 * width, width),
        ),
    )


def _time_block(c: Config, width: Dim) -> Module:
    mapper = Linear(size(c, "timestep_ratio_embedding_dim"), 2 * width)
    conditions = c.texts("timestep_conditioning_type")
    if not {"sca", "crp"}.issuperset(conditions):
        raise outside(c, "timestep_conditioning_type")
    return module(mapper=mapper, **{f"mapper_{name}": mapper for name in conditions})


def _attention_block(c: Config, width: Dim, heads: int) -> Module:
    if heads < 1:
        raise outside(c, "num_attention_heads")
    D = heads * width.floor(heads)
    return module(
        attention=module(
            to_q=Linear(width, D),
            to_k=Linear(width, D),
            to_v=Linear(width, D),
            to_out=sequential(Linear(D, width)),
        ),
        kv_mapper=sequential(None, Linear(size(c, "conditioning_dim"), width)),
    )


def _mapper(c: Config, key: str, width: Dim) -> Module | None:
    """Return two convolutions over another image, if its channels are given."""
    if not c.present(key):
        return None
    return sequential(Conv(size(c, key), 4 * width, (1, 1)), None, Conv(4 * width, width, (1, 1)))


def _kinds(c: Config, blocks: int) -> list[list[str]]:
    """Return the kinds of a layer's parts in each block."""
    rows = c.attribute("block_types_per_layer")
    known = {_RES, _TIME, _ATTENTION}
    is_list = isinstance(rows, list | tuple) and len(rows) == blocks
    if not is_list or not all(
        isinstance(row, list | tuple)
        and len(row) <= MOST_LAYERS
        and all(isinstance(kind, str) and kind in known for kind in row)
        for row in rows
    ):
        raise outside(c, "block_types_per_layer")
    return [[*row] for row in rows]


def _blocks(c: Config, channels: tuple[Dim, ...], way: str) -> list[Block]:
    """Return the blocks of a way by their place on the way down.

    On the way up the first part of each block but the deepest reads an output of the way down.
    """
    count = len(channels)
    layers = counts_by_block(c, f"{way}_num_layers_per_block", count)
    heads = c.integers("num_attention_heads")
    if len(heads) != count:
        raise outside(c, "num_attention_heads")
    blocks = list[Block]()
    for i, kinds in enumerate(_kinds(c, count)):
        built = {
            kind: _res_block(c, channels[i])
            if kind == _RES
            else _time_block(c, channels[i])
            if kind == _TIME
            else _attention_block(c, channels[i], heads[i])
            for kind in kinds
        }
        parts = [built[kind] for kind in kinds] * (layers[::-1][i] if way == "up" else layers[i])
        if way == "up" and i < count - 1 and parts and kinds[0] == _RES:
            parts[0] = _res_block(c, channels[i], channels[i])
        blocks.append(layers_of(parts))
    return blocks


def _repeated(c: Config, channels: tuple[Dim, ...], way: str) -> list[Block]:
    """Return the convolutions before a way's repetitions; the first one has no convolution."""
    counts = counts_by_block(c, f"{way}_blocks_repeat_mappers", len(channels))
    places = range(len(channels))
    return [
        layers_of(
            [Conv(W, W, (1, 1))] * max(counts[::-1][i] - 1 if way == "up" else counts[i] - 1, 0)
        )
        for i, W in zip(places, channels, strict=True)
    ]


def _resized(c: Config, channels: tuple[Dim, ...], way: str) -> list[Module]:
    """Return what is between two blocks of a way, by place; the first block has nothing."""
    is_switched, is_down = c.present("switch_level"), way == "down"
    found = [module()]
    for outer, inner in pairwise(channels):
        inputs, outputs = (outer, inner) if is_down else (inner, outer)
        if is_switched:
            change = Conv(inputs, outputs, (1, 1))
            part = module(blocks=sequential(change) if is_down else sequential(None, change))
        elif is_down:
            part = Conv(inputs, outputs, (2, 2))
        else:
            part = ConvTranspose(inputs, outputs, (2, 2))
        found.append(sequential(None, part))
    return found


def cascade(c: Config) -> Module:
    channels = widths(c, "block_out_channels")
    W, X = channels[0], size(c, "conditioning_dim")
    area = size(c, "patch_size") * size(c, "patch_size")
    text, image = (
        size(c, key) if c.present(key) else None
        for key in ("clip_text_in_channels", "clip_image_in_channels")
    )
    sequence = X * size(c, "clip_seq")
    return module(
        effnet_mapper=_mapper(c, "effnet_in_channels", W),
        pixels_mapper=_mapper(c, "pixel_mapper_in_channels", W),
        clip_txt_pooled_mapper=Linear(size(c, "clip_text_pooled_in_channels"), sequence),
        clip_txt_mapper=Linear(text, X) if text else None,
        clip_img_mapper=Linear(image, sequence) if image else None,
        embedding=sequential(None, Conv(size(c, "in_channels") * area, W, (1, 1))),
        down_blocks=sequential(*_blocks(c, channels, "down")),
        down_downscalers=sequential(*_resized(c, channels, "down")),
        down_repeat_mappers=sequential(*_repeated(c, channels, "down")),
        up_blocks=sequential(*_blocks(c, channels, "up")[::-1]),
        up_upscalers=sequential(*_resized(c, channels, "up")[::-1]),
        up_repeat_mappers=sequential(*_repeated(c, channels, "up")[::-1]),
        clf=sequential(None, Conv(W, size(c, "out_channels") * area, (1, 1))),
    )


CLASSES = MappingProxyType({"StableCascadeUNet": LibraryForm(CASCADE, cascade)})
