"""The key-value cache of a decoder, computed from the shapes of its projections.

A layer's cache is as wide as what comes out of its key and its value projection:
2 x num_key_value_heads x head_dim where the heads are even. Reading it off the tensors counts
uneven layers, layers that share keys and values, and layers without attention as they are.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.folded_names import escaped_name, expand
from auditor.tensors import natural_key

# Encoders attend as well, and keep nothing. Families that decode, by model type.
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
_FUSED = ("c_attn", "query_key_value", "Wqkv", "qkv_proj")  # queries, keys and values in one
_OUTPUT = ("c_proj", "dense", "out_proj", "o_proj", "o")
_NAMES = (*_KEYS, *_FUSED, *_OUTPUT, "q_proj", "q", "v_proj", "v", "q_attn", "q_b_proj")
_ENDS = tuple(f".{name}.weight" for name in _NAMES)
_ATTENTION = re.compile(r".*\.(?P<layer>[0-9]{1,9})\.[\w.]+")
_TOWER = re.compile(r"(^|\.)(visual|vision_\w+|audio_\w+|encoder|mtp)\.")
_CROSS = re.compile(r"\.(encoder_attn|EncDecAttention|crossattention)$")
_SLIDING = frozenset({"sliding_attention", "chunked_attention"})


class LayerCache(NamedTuple):
    """The elements that one layer keeps of each token."""

    layer: int
    elements: int
    window: int | None  # tokens that it keeps at most; None: all of them
    expanded: int  # what transformers keeps, where it does not keep the least: latent attention


class KVCache(Struct, frozen=True, kw_only=True):
    """The key-value cache of a decoder; multiply by the bytes of an element and by the batch."""

    layers: tuple[LayerCache, ...]  # those that attend to what was decoded
    cross: int = 0  # elements for each token of the encoder, all layers together

    @property
    def per_token(self) -> int:
        """Elements that one more token takes, while no window is full."""
        return sum(layer.elements for layer in self.layers)

    @property
    def expanded_per_token(self) -> int:
        return sum(layer.expanded for layer in self.layers)

    def elements(self, tokens: int) -> int:
        """Elements after `tokens` tokens; a layer with a window keeps no more than the window."""
        return sum(layer.elements * min(tokens, layer.window or tokens) for layer in self.layers)


def kv_cache(expectation: Expectation, values: Mapping[str, Any]) -> KVCache | None:
    """The cache of the expectation's class under the config's `values`; None: it decodes nothing.

    Windows are known where the config lists `layer_types`; else the cache is the most it can be.
    """
    if expectation.model_type not in _DECODERS:
        return None
    attentions = _attentions(expectation)
    windows = _windows(values)
    layers, cross = [], 0
    for path, (layer, widths) in attentions.items():
        found = _kept(widths)
        if found is None:
            continue
        if _CROSS.search(path):
            cross += found[0]
        else:
            window = windows[layer] if layer < len(windows) else None
            layers.append(LayerCache(layer, found[0], window, found[1]))
    return KVCache(layers=tuple(layers), cross=cross) if layers or not attentions else None


class _Widths(NamedTuple):
    """(into, out of) each projection of one attention block."""

    layer: int
    widths: dict[str, tuple[int, int]]


def _attentions(expectation: Expectation) -> Mapping[str, _Widths]:
    """The attention blocks by path, in natural order; layers of one kind are looked at once."""
    outline = expectation.outline
    tensors = (
        outline.tensors
        if outline
        else (one._replace(name=escaped_name(one.name)) for one in expectation.tensors)
    )
    found = {
        path: widths for pattern, widths in _blocks(tensors).items() for path in expand(pattern)
    }
    return {
        path: _Widths(layer, found[path])
        for path in sorted(found, key=natural_key)
        if (layer := _layer(path)) is not None
    }


def _blocks(tensors: Iterable[ExpectedTensor]) -> Mapping[str, dict[str, tuple[int, int]]]:
    """(into, out of) each projection of the attention blocks, by folded path."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for tensor in tensors:
        if not tensor[0].endswith(_ENDS):
            continue
        path, _, last = tensor.name.removesuffix(".weight").rpartition(".")
        drafting = tensor.role is Role.EXTRA  # it is not run here
        if drafting or len(tensor.shape) != 2:  # noqa: PLR2004 - a matrix
            continue
        out, into = tensor.shape
        found.setdefault(path, {})[last] = (into, out)
    attend = {*_KEYS, *_FUSED}
    return {path: widths for path, widths in found.items() if attend & widths.keys()}


@lru_cache(maxsize=4096)  # a block has four projections, and the next model the same blocks
def _layer(path: str) -> int | None:
    """The number of the layer that a path leads to; None: to none, or to one of another tower."""
    match = _ATTENTION.fullmatch(path)
    return None if match is None or _TOWER.search(f"{path}.") else int(match["layer"])


def _kept(widths: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Elements a token, the least that the block needs, and what transformers keeps."""
    output = next((widths[name][0] for name in _OUTPUT if name in widths), 0)
    if "kv_a_proj_with_mqa" in widths:  # one narrow vector for keys and values, and a rotary key
        queries = widths.get("q_b_proj") or widths["q_proj"]
        return widths["kv_a_proj_with_mqa"][1], queries[1] + output
    for key, value in (("k_proj", "v_proj"), ("k", "v")):
        if key in widths:
            kept = widths[key][1] + widths.get(value, widths[key])[1]
            return kept, kept
    fused = next(name for name in _FUSED if name in widths)
    into, out = widths[fused]
    if fused == "c_attn":  # Conv1D stores (in, out); its queries are as wide as what comes in
        into, out = out, into
        output = into
    kept = out if "q_attn" in widths else out - output
    return (kept, kept) if kept > 0 else None


def _windows(values: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return each layer's window in tokens; empty if the config does not list layer_types."""
    inner = values.get("text_config")
    level = inner if isinstance(inner, Mapping) else values
    types, window = level.get("layer_types"), level.get("sliding_window")
    if not isinstance(types, list) or type(window) is not int or window < 1:
        return ()
    return tuple(window if isinstance(kind, str) and kind in _SLIDING else None for kind in types)
