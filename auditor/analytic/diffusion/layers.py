"""The layers that UNets and autoencoders of diffusers share."""

from collections.abc import Sequence
from typing import NamedTuple

from auditor.analytic.blocks import (
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
    inputs: Dim, outputs: Dim, time: Dim | None = None, *, scale_shift: bool = False
) -> Module:
    """Return a ResnetBlock2D; a shortcut exists only if the widths differ."""
    time_width = 2 * outputs if scale_shift else outputs
    return module(
        norm1=GroupNorm(inputs),
        conv1=Conv(inputs, outputs, (3, 3)),
        time_emb_proj=Linear(time, time_width) if time else None,
        norm2=GroupNorm(outputs),
        conv2=Conv(outputs, outputs, (3, 3)),
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


def feed_forward(width: Dim) -> Module:
    """Return a FeedForward with GEGLU: (2 * 4D, D), then (D, 4D)."""
    return module(
        net=sequential(module(proj=Linear(width, 8 * width)), None, Linear(4 * width, width))
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
        block = module(
            norm1=LayerNorm(D),
            attn1=attention(D, self.text if self.only_cross else None),
            norm2=LayerNorm(D),
            attn2=attention(D, self.text),
            norm3=LayerNorm(D),
            ff=feed_forward(D),
        )
        proj = Linear if self.is_linear else _pointwise
        return module(
            norm=GroupNorm(channels),
            proj_in=proj(channels, D),
            transformer_blocks=repeat(counted_dim(self.depth), lambda: block),
            proj_out=proj(D, channels),
        )


def _pointwise(inputs: Dim, outputs: Dim) -> Module:
    return Conv(inputs, outputs, (1, 1))


def layers_of(layers: Sequence[Module]) -> Layers:
    """Return a list of layers; equal layers follow one another only if they are one object."""
    return stack(counted_dim(len(layers)), lambda i: layers[i], lambda layer: layer)


def sampler(channels: Dim) -> Module:
    """Return a Downsample2D or an Upsample2D in a list of one."""
    return sequential(module(conv=Conv(channels, channels, (3, 3))))
