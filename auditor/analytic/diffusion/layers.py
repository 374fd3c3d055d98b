"""The layers that UNets and autoencoders of diffusers share."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from auditor.analytic.blocks import (
    Block,
    Conv,
    LayerNorm,
    Linear,
    Module,
    Repeat,
    Stack,
    module,
    repeat,
    sequential,
    stack,
)
from auditor.analytic.dims import Dim, counted_dim

GroupNorm = LayerNorm  # weight and bias of shape (channels,) as well

Layers = Repeat | Stack


def resnet(
    inputs: Dim,
    outputs: Dim,
    time: Dim | None = None,
    *,
    scale_shift: bool = False,
    kernel: tuple[int, ...] = (3, 3),
) -> Module:
    """Return a ResnetBlock2D; a shortcut exists only if the widths differ."""
    time_width = 2 * outputs if scale_shift else outputs
    return module(
        norm1=GroupNorm(inputs),
        conv1=Conv(inputs, outputs, kernel),
        time_emb_proj=Linear(time, time_width) if time else None,
        norm2=GroupNorm(outputs),
        conv2=Conv(outputs, outputs, kernel),
        conv_shortcut=Conv(inputs, outputs, (1, 1)) if inputs.value != outputs.value else None,
    )


def attention(width: Dim, text: Dim | None = None) -> Module:
    """Return an Attention without biases of the projections, over a text if its width is given."""
    source = text or width
    return module(
        to_q=Linear(width, width, bias=False),
        to_k=Linear(source, width, bias=False),
        to_v=Linear(source, width, bias=False),
        to_out=sequential(Linear(width, width)),
    )


def biased_attention(width: Dim, head: Dim | None = None, *, is_normed: bool = True) -> Module:
    """Return an Attention over an image, with biases; a head as wide as the image if not given."""
    D = head * width.floor(head) if head else width
    return module(
        group_norm=GroupNorm(width) if is_normed else None,
        to_q=Linear(width, D),
        to_k=Linear(width, D),
        to_v=Linear(width, D),
        to_out=sequential(Linear(D, width)),
    )


def feed_forward(width: Dim) -> Module:
    """Return a FeedForward with GEGLU: (2 * 4D, D), then (D, 4D)."""
    return module(
        net=sequential(module(proj=Linear(width, 8 * width)), None, Linear(4 * width, width))
    )


def time_embedding(
    inputs: Dim, time: Dim, conditions: Dim | None = None, outputs: Dim | None = None
) -> Module:
    """Return a TimestepEmbedding, whose outputs are as wide as the time if not given."""
    return module(
        linear_1=Linear(inputs, time),
        cond_proj=Linear(conditions, inputs, bias=False) if conditions else None,
        linear_2=Linear(time, outputs or time),
    )


def transformer_block(width: Dim, text: Dim | None, *, only_cross: bool = False) -> Module:
    """Return a BasicTransformerBlock; with `only_cross`, attn1 reads the text as well."""
    return module(
        norm1=LayerNorm(width),
        attn1=attention(width, text if only_cross else None),
        norm2=LayerNorm(width),
        attn2=attention(width, text),
        norm3=LayerNorm(width),
        ff=feed_forward(width),
    )


class Transformers(NamedTuple):
    """The transformers of a block: each has `depth` blocks of attention over the text."""

    depth: int
    heads: Dim
    text: Dim
    is_linear: bool  # use_linear_projection
    only_cross: bool = False  # attn1 reads the text as well

    def of(self, channels: Dim) -> Module:
        """Return a Transformer2DModel for images with the given number of channels."""
        D = self.heads * channels.floor(self.heads)
        block = transformer_block(D, self.text, only_cross=self.only_cross)
        proj = Linear if self.is_linear else _pointwise
        return module(
            norm=GroupNorm(channels),
            proj_in=proj(channels, D),
            transformer_blocks=repeat(counted_dim(self.depth), lambda: block),
            proj_out=proj(D, channels),
        )


def _pointwise(inputs: Dim, outputs: Dim) -> Module:
    return Conv(inputs, outputs, (1, 1))


def down_inputs(channels: Sequence[Dim], layers: Sequence[int], block: int) -> list[Dim]:
    """Return the width that each layer of a block on the way down reads."""
    own = [channels[block]] * (layers[block] - 1)
    return [channels[max(block - 1, 0)], *own][: layers[block]]


def up_inputs(channels: Sequence[Dim], layers: Sequence[int], place: int) -> list[Dim]:
    """Return the width that each layer of a block on the way up reads.

    The block has the width of the block `place` on the way down, and one layer more. Each layer
    reads its predecessor's output and an output of the way down.
    """
    W, more = channels[place], layers[place]
    before = [channels[min(place + 1, len(channels) - 1)], *[W] * more]
    skipped = [*[W] * more, channels[max(place - 1, 0)]]
    return [one + other for one, other in zip(before, skipped, strict=True)]


class Ways(NamedTuple):
    """The blocks of a UNet on the way down and up, each of a kind that its config names."""

    channels: tuple[Dim, ...]
    layers: tuple[int, ...]
    down_kinds: tuple[str, ...]
    up_kinds: tuple[str, ...]

    def built(
        self,
        parts: Callable[[int, str, list[Dim]], Mapping[str, Block | None]],
        resample: Callable[[int, str], Module] | None = None,
    ) -> dict[str, Block]:
        """Return both ways; `parts` gets a place on the way down, a kind and the widths read."""
        last, down, up = len(self.channels) - 1, list[Module](), list[Module]()
        change = resample or (lambda place, _kind: sampler(self.channels[place]))
        for i, kind in enumerate(self.down_kinds):
            built = parts(i, kind, down_inputs(self.channels, self.layers, i))
            down.append(module(**built, downsamplers=change(i, kind) if i < last else None))
        for i, kind in enumerate(self.up_kinds):
            place = last - i
            built = parts(place, kind, up_inputs(self.channels, self.layers, place))
            up.append(module(**built, upsamplers=change(place, kind) if place else None))
        return {"down_blocks": layers_of(down), "up_blocks": layers_of(up)}


def layers_of(layers: Sequence[Module]) -> Layers:
    """Return a list of layers; equal layers follow one another only if they are one object."""
    return stack(counted_dim(len(layers)), lambda i: layers[i], lambda layer: layer)


def sampler(channels: Dim) -> Module:
    """Return a Downsample2D or an Upsample2D in a list of one."""
    return sequential(module(conv=Conv(channels, channels, (3, 3))))
