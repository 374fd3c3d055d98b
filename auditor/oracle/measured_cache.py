"""The cache of a class without a closed form: transformers fills one on the meta device.

A tensor of the meta device has a shape and no numbers, so a forward pass takes no memory. It takes
0.1 to 10 s for the default configs of 300 types, so only `audit memory` asks for it.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from auditor.analytic.kv_cache import KVCache, LayerCache

_TOKENS = 2
_SECOND_OF_SOUND = 16_000  # samples
# The kinds of layers in transformers' cache_utils.py whose sizes LayerCache describes.
_KNOWN = (
    "DummyLayer DynamicIndexedLayer DynamicLayer DynamicSlidingWindowLayer LinearAttentionLayer "
    "LinearAttentionAndFullAttentionLayer LinearAttentionAndSlidingWindowAttentionLayer"
)


def measured_cache(model: Any) -> KVCache | None:
    """Return the cache of a model on the meta device; None if it keeps none or cannot run."""
    import torch  # noqa: PLC0415 - see the docstring of `build`

    if not model.can_generate():
        return None
    try:
        # Kernels for mixtures of experts take 16 bits only.
        with torch.no_grad(), torch.device("meta"), _zeros(torch):
            run = model.to(torch.bfloat16).eval()(**_inputs(model, torch), use_cache=True)
        return cache_of(run.get("past_key_values") or run.get("cache_params"), _TOKENS)
    except Exception:  # noqa: BLE001 - a modeling file can raise anything
        return None


def _zeros(torch: Any) -> Any:
    """Return a mode in which a number read from a tensor of the meta device is zero."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - as above

    class Zeros(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001 - item()
                return args[0].dtype is not torch.bool and 0
            return func(*args, **kwargs or {})

    return Zeros()  # type: ignore[no-untyped-call]


def _inputs(model: Any, torch: Any) -> dict[str, Any]:
    """Return the fewest inputs that the model decodes from, on the meta device."""
    config, name = model.config, model.main_input_name
    ids = torch.zeros(1, _TOKENS, dtype=torch.long)
    inputs = {"decoder_input_ids": ids} if config.is_encoder_decoder else {}
    if name == "input_features":
        # Two convolutions halve the frames; position embeddings fix their number.
        shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
        return inputs | {name: torch.zeros(shape, dtype=torch.bfloat16)}
    if name == "input_values":
        return inputs | {name: torch.zeros(1, _SECOND_OF_SOUND, dtype=torch.bfloat16)}
    return inputs | {"input_ids": ids}


def cache_of(filled: Any, tokens: int) -> KVCache | None:
    """Return the sizes of a cache that `tokens` tokens filled; None for unknown kinds of layers.

    No window may be full yet.
    """
    cross = getattr(filled, "cross_attention_cache", None)
    own = filled if cross is None else filled.self_attention_cache
    if any(type(layer).__name__ not in _KNOWN.split() for layer in own.layers):
        return None
    layers = []
    for number, layer in enumerate(own.layers):
        keys = list(_keys(layer))
        kept = sum(tensor.numel() for tensor in keys)
        states = list(_states(layer))
        wide = sum(state.numel() for state in states if state.dtype.itemsize == 4)  # noqa: PLR2004
        narrow = sum(state.numel() for state in states) - wide
        if any(tensor.shape[-2] != tokens for tensor in keys):
            return None
        if kept or states:
            window = getattr(layer, "sliding_window", None)
            layers.append(LayerCache(number, kept // tokens, window, narrow, wide))
    read = [tuple(_keys(layer)) for layer in cross.layers] if cross else []
    encoded = read[0][0].shape[-2] if read and read[0] else 1
    elements = sum(tensor.numel() for tensor in chain(*read))
    return KVCache(layers=tuple(layers), cross=elements // encoded)


def _keys(layer: Any) -> Iterator[Any]:
    """Yield the tensors of a layer that grow with the tokens."""
    for name in ("keys", "values", "indexer_keys"):
        if (tensor := getattr(layer, name, None)) is not None:
            yield tensor


def _states(layer: Any) -> Iterator[Any]:
    for name in ("conv_states", "recurrent_states"):
        yield from (one for one in getattr(layer, name, {}).values() if one is not None)
