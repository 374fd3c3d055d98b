"""The KVCache class: what transformers keeps of the tokens that a model has read.

A dynamic cache grows with the tokens; a layer with a window of W keeps the last W - 1 of them,
because the next token joins them. A static cache is allocated in full at the start, with W tokens
for a layer with a window (transformers' cache_utils.py, DynamicCache and StaticCache). States of
recurrent and convolution layers have one size, whatever the number of tokens.
"""

import re
from typing import NamedTuple

from msgspec import Struct

_GENERATING = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|MTModel)$")


def generates(target: str) -> bool:
    """Return whether the class name is that of a model that generates tokens."""
    return bool(_GENERATING.search(target))


class LayerCache(NamedTuple):
    """The numbers of elements that one layer keeps in the cache."""

    layer: int
    elements: int  # for each token
    window: int | None = None  # the sliding window in tokens; None if all tokens are kept
    states: int = 0  # of convolutions and recurrences, in the dtype of the cache
    wide_states: int = 0  # likewise, but in F32 whatever the dtype

    def tokens(self, tokens: int, *, static: bool = False) -> int:
        """Return how many of the tokens the layer keeps."""
        if self.window is None:
            return tokens
        # transformers slices with -W + 1: for a window of 1 that is all tokens.
        return min(tokens, self.window if static else (self.window - 1 or tokens))


class KVCache(Struct, frozen=True, kw_only=True):
    """The cache of a decoder, in elements; multiply by the bytes of an element and by the batch."""

    layers: tuple[LayerCache, ...]  # the layers with self-attention or states
    cross: int = 0  # elements for each token of the encoder, summed over the layers
    frames: int | None = None  # the fixed number of the encoder's tokens; None if inputs decide

    @property
    def per_token(self) -> int:
        """The number of elements that each token adds while no sliding window is full."""
        return sum(layer.elements for layer in self.layers)

    @property
    def states(self) -> int:
        return sum(layer.states for layer in self.layers)

    @property
    def wide_states(self) -> int:
        return sum(layer.wide_states for layer in self.layers)

    @property
    def fixed_cross(self) -> int:
        """The number of cross-attention elements if the encoder's token count is fixed, else 0."""
        return self.cross * (self.frames or 0)

    def elements(self, tokens: int, *, static: bool = False) -> int:
        """Return the number of cached elements for `tokens` tokens, without the states in F32."""
        kept = sum(
            layer.elements * layer.tokens(tokens, static=static) + layer.states
            for layer in self.layers
        )
        return kept + self.fixed_cross

    def paged(self, tokens: int, block: int) -> int | None:
        """Return the number of elements if the cache consists of blocks of `block` tokens.

        Return None if the model also has cross attention or states. A sliding window may extend
        over one block more than its tokens fill.
        """
        if self.cross or any(layer.states or layer.wide_states for layer in self.layers):
            return None
        return sum(layer.elements * _in_blocks(layer, tokens, block) for layer in self.layers)


def _in_blocks(layer: LayerCache, tokens: int, block: int) -> int:
    every = -(-tokens // block)
    if layer.window is None:
        return every * block
    return min(every, -(-(layer.window - 1) // block) + 1) * block
