"""Drafting layers, which predict the tokens after the next one; no transformers class reads them.

Some models store these layers. DeepSeek-V3 introduced them, https://arxiv.org/abs/2412.19437
section 2.2.
"""

from collections.abc import Callable

from auditor.analytic.blocks import (
    Embedding,
    Extra,
    Linear,
    Module,
    Repeat,
    RMSNorm,
    list_indices,
    module,
)
from auditor.analytic.config import Config
from auditor.errors import CheckpointError


def drafting(c: Config, layer: Callable[[], Module]) -> tuple[tuple[str, Extra], ...]:
    """Return `num_nextn_predict_layers` drafting layers, numbered after the decoder's own layers.

    A drafting layer is a decoder layer with norms of its two inputs, a projection of both, and
    copies of the embedding and of the head.
    """
    V, D = c.dim("vocab_size"), c.dim("hidden_size")
    count = c.optional("num_nextn_predict_layers")
    if count is None or count.value < 1:
        return ()
    try:
        children = dict(layer().children)
    except CheckpointError:
        return ()  # no version could store such layers
    drafter = module(
        embed_tokens=Embedding(V, D),
        enorm=RMSNorm(D),
        hnorm=RMSNorm(D),
        eh_proj=Linear(2 * D, D, bias=False),
        **children,
        shared_head=module(norm=RMSNorm(D), head=Linear(D, V, bias=False)),
    )
    first = c.integer("num_hidden_layers")
    return tuple((f"layers.{first + number}", Extra(drafter)) for number in list_indices(count))


def drafting_aside(c: Config, layer: Callable[[], Module]) -> dict[str, Extra]:
    """Return Qwen 3.5's separate decoder `mtp`, of `mtp_num_hidden_layers` drafting layers."""
    if not isinstance(c.attribute("mtp_num_hidden_layers"), int):
        return {}
    D, count = c.dim("hidden_size"), c.dim("mtp_num_hidden_layers")
    if count.value < 1:
        return {}
    try:
        drafting_layer = layer()
    except CheckpointError:
        return {}  # no version could store such layers
    drafter = module(
        pre_fc_norm_embedding=RMSNorm(D),
        pre_fc_norm_hidden=RMSNorm(D),
        fc=Linear(2 * D, D, bias=False),
        layers=Repeat(count, drafting_layer),
        norm=RMSNorm(D),
    )
    return {"mtp": Extra(drafter)}
