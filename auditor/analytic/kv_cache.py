"""The key-value cache of a decoder, computed from the shapes of its projections.

A layer's cache is as wide as the outputs of its key and value projections together:
2 x num_key_value_heads x head_dim if the heads are equal. The widths of the tensors
are also right for uneven layers, layers that share keys and values, and layers without attention.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.names import escaped_name, expand
from auditor.tensors import natural_key

# The model types that decode; encoders have attention too, but no cache.
_DECODING = (
    "bart bloom cohere cohere2 deepseek_v2 deepseek_v3 falcon gemma gemma2 gemma3 gemma3_text "
    "gemma4 gemma4_text glm4 glm4_moe gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite "
    "granitemoe lfm2 lfm2_moe llama llava m2m_100 marian mbart mistral mixtral mpt mt5 olmo2 "
    "olmoe opt paligemma pegasus phi phi3 qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_moe qwen2_vl "
    "qwen2_vl_text qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_vl "
    "qwen3_vl_text smollm3 stablelm starcoder2 t5 whisper"
)
_DECODERS = frozenset(_DECODING.split())

_KEYS = ("k_proj", "k", "kv_a_proj_with_mqa")
_FUSED = ("c_attn", "query_key_value", "Wqkv", "qkv_proj")  # queries, keys and values fused
_OUTPUT = ("c_proj", "dense", "out_proj", "o_proj", "o")
_NAMES = (*_KEYS, *_FUSED, *_OUTPUT, "q_proj", "q", "v_proj", "v", "q_attn", "q_b_proj")
_ENDS = tuple(f".{name}.weight" for name in _NAMES)
_ATTENTION = re.compile(r".*\.(?P<layer>[0-9]{1,9})\.[\w.]+")
_TOWER = re.compile(r"(^|\.)(visual|vision_\w+|audio_\w+|encoder|mtp)\.")
_CROSS = re.compile(r"\.(encoder_attn|EncDecAttention|crossattention)$")
_SLIDING = frozenset({"sliding_attention", "chunked_attention"})


class LayerCache(NamedTuple):
    """The number of elements that one layer caches for each token."""

    layer: int
    elements: int
    window: int | None  # the most tokens that the layer caches; None if all
    expanded: int  # elements that transformers caches: for latent attention, more than needed


class KVCache(Struct, frozen=True, kw_only=True):
    """The key-value cache of a decoder; multiply by the bytes of an element and by the batch."""

    layers: tuple[LayerCache, ...]  # the layers with self-attention
    cross: int = 0  # elements for each encoder token, summed over the layers

    @property
    def per_token(self) -> int:
        """The number of elements that each token adds while no sliding window is full."""
        return sum(layer.elements for layer in self.layers)

    @property
    def expanded_per_token(self) -> int:
        return sum(layer.expanded for layer in self.layers)

    def elements(self, tokens: int) -> int:
        """Return the number of cached elements after `tokens` tokens, as limited by windows."""
        return sum(layer.elements * min(tokens, layer.window or tokens) for layer in self.layers)


def kv_cache(expectation: Expectation, values: Mapping[str, Any]) -> KVCache | None:
    """Return the cache of the class, given the config's `values`; None if it has no cache.

    Sliding windows are known if the config lists `layer_types`; else the result is an upper bound.
    """
    if expectation.model_type not in _DECODERS:
        return None
    attentions = _attentions(expectation)
    windows = _windows(values)
    layers, cross = [], 0
    for path, (layer, widths) in attentions.items():
        elements = _cached_elements(widths)
        if elements is None:
            continue
        if _CROSS.search(path):
            cross += elements[0]
        else:
            window = windows[layer] if layer < len(windows) else None
            layers.append(LayerCache(layer, elements[0], window, elements[1]))
    return KVCache(layers=tuple(layers), cross=cross) if layers or not attentions else None


class _Widths(NamedTuple):
    """The projections of one attention block: (inputs, outputs) by name."""

    layer: int
    widths: dict[str, tuple[int, int]]


def _attentions(expectation: Expectation) -> Mapping[str, _Widths]:
    """Return the projections of the attention blocks by path, in natural order."""
    outline = expectation.outline
    tensors = (
        outline.tensors
        if outline
        else (one._replace(name=escaped_name(one.name)) for one in expectation.tensors)
    )
    widths_by_path = {
        path: widths for pattern, widths in _blocks(tensors).items() for path in expand(pattern)
    }
    return {
        path: _Widths(layer, widths_by_path[path])
        for path in sorted(widths_by_path, key=natural_key)
        if (layer := _layer(path)) is not None
    }


def _blocks(tensors: Iterable[ExpectedTensor]) -> Mapping[str, dict[str, tuple[int, int]]]:
    """Return (inputs, outputs) of each attention block's projections, by folded path."""
    widths_by_path: dict[str, dict[str, tuple[int, int]]] = {}
    for tensor in tensors:
        if not tensor[0].endswith(_ENDS):
            continue
        path, _, last = tensor.name.removesuffix(".weight").rpartition(".")
        drafting = tensor.role is Role.EXTRA  # not run in plain decoding
        if drafting or len(tensor.shape) != 2:  # noqa: PLR2004 - a matrix
            continue
        out, into = tensor.shape
        widths_by_path.setdefault(path, {})[last] = (into, out)
    attend = {*_KEYS, *_FUSED}
    return {path: widths for path, widths in widths_by_path.items() if attend & widths.keys()}


@lru_cache(maxsize=4096)  # models share most of these paths
def _layer(path: str) -> int | None:
    """Return the layer number in a path; None if the path is not in a decoder layer."""
    match = _ATTENTION.fullmatch(path)
    return None if match is None or _TOWER.search(f"{path}.") else int(match["layer"])


def _cached_elements(widths: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Return two counts of elements per token: the least possible, and that of transformers."""
    output = next((widths[name][0] for name in _OUTPUT if name in widths), 0)
    if "kv_a_proj_with_mqa" in widths:  # a latent vector, and a rotary key
        queries = widths.get("q_b_proj") or widths["q_proj"]
        return widths["kv_a_proj_with_mqa"][1], queries[1] + output
    for key, value in (("k_proj", "v_proj"), ("k", "v")):
        if key in widths:
            elements = widths[key][1] + widths.get(value, widths[key])[1]
            return elements, elements
    fused = next(name for name in _FUSED if name in widths)
    into, out = widths[fused]
    if fused == "c_attn":  # Conv1D stores (in, out); queries are as wide as the input
        into, out = out, into
        output = into
    elements = out if "q_attn" in widths else out - output
    return (elements, elements) if elements > 0 else None


def _windows(values: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return each layer's sliding window in tokens; () if the config has no layer_types."""
    inner = values.get("text_config")
    level = inner if isinstance(inner, Mapping) else values
    types, window = level.get("layer_types"), level.get("sliding_window")
    if not isinstance(types, list) or type(window) is not int or window < 1:
        return ()
    return tuple(window if isinstance(kind, str) and kind in _SLIDING else None for kind in types)
