"""The cache of a class with a form, from the shapes of its tensors and its config.

A layer keeps as many elements of each token as its key and value projections have outputs:
2 x num_key_value_heads x head_dim if the heads are equal. The widths of the tensors are also right
for uneven layers, and for layers that share keys and values. Latent attention keeps its latent
vector and the rotary key. A convolution keeps as many inputs as its weight has columns. Sliding
windows are those of transformers' `get_layer_types_and_kwargs` (cache_utils.py). For a class with a
generated form the rule is used if it was compared with transformers (tools/catalogue).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from auditor.analytic import catalogue, generated
from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.analytic.kv_cache import KVCache, LayerCache, generates
from auditor.names.folding import escaped_name, expand
from auditor.tensors import natural_key

# Types with such classes that keep no cache, or another one than this module's rule.
_OTHERS = (
    "bert blip camembert electra layoutlm openai-gpt roberta rwkv vision-encoder-decoder wavlm "
    "xlm-roberta"
)

_KEYS = ("k_proj", "k", "kv_a_proj_with_mqa")
_FUSED = ("c_attn", "query_key_value", "Wqkv", "qkv_proj")  # queries, keys and values fused
_OUTPUT = ("c_proj", "dense", "out_proj", "o_proj", "o")
_STATES = ("conv", "conv1d")
_ENDS = tuple(f".{name}.weight" for name in (*_KEYS, *_FUSED, *_OUTPUT, *_STATES, "v_proj", "v"))
_LAYER = re.compile(r"[^.]+\.(?:[^.]+\.)*?(?P<layer>[0-9]{1,9})\.[\w.]+")
_TOWER = re.compile(r"(^|\.)(visual|vision_\w+|audio_\w+|encoder|mtp)\.")
_CROSS = re.compile(r"\.(encoder_attn|EncDecAttention|crossattention)$")
_SLIDING = frozenset({"sliding_attention", "chunked_attention"})

Read = Callable[[str], Any]


def kv_cache(expectation: Expectation, config: Config) -> KVCache | None:
    """Return the cache of a class; None if it has no cache, or the cache is not known."""
    model_type = expectation.model_type
    if expectation.by == "generated" and not catalogue.siblings(model_type):
        is_held = expectation.target in generated.index().caches
        return computed_cache(expectation) if is_held and not _may_slide(config.values) else None
    if expectation.by == "oracle" or model_type in _OTHERS.split() or not _decodes(model_type):
        return None
    return computed_cache(expectation, *_decoder_config(config, model_type))


def computed_cache(
    expectation: Expectation, text_type: str = "", read: Read = lambda _: None
) -> KVCache | None:
    """Return the cache that the tensors of a decoder imply; `read` reads its completed config."""
    model_type = expectation.model_type
    layers, cross = [], 0
    kinds = _Windows(text_type, read)
    blocks = _blocks_by_path(expectation)
    for path, (layer, shapes) in blocks.items():
        if _CROSS.search(path):
            cross += _cached_elements(shapes, text_type, read)
            continue
        states = _states(shapes, text_type, read)
        elements = 0 if states else _cached_elements(shapes, text_type, read)
        if states or elements:
            window = None if states else kinds.window(layer)
            layers.append(LayerCache(layer, elements, window, *states))
    frames = read("max_source_positions") if model_type == "whisper" else None
    known = layers or not blocks
    return KVCache(layers=tuple(layers), cross=cross, frames=frames) if known else None


def _decodes(model_type: str) -> bool:
    names = catalogue.siblings(model_type.removesuffix("_text"))
    return any(generates(name) for name in (*names, *catalogue.siblings(model_type)))


def _may_slide(values: Mapping[str, Any]) -> bool:
    """Return whether a config states a window, or layers with one."""
    return any(
        _may_slide(value)
        if isinstance(value, Mapping)
        else (type(value) is int and "window" in key)
        or (isinstance(value, list) and any(kind in value for kind in _SLIDING))
        for key, value in values.items()
    )


def _decoder_config(config: Config, model_type: str) -> tuple[str, Read]:
    """Return the decoder's model type, and a reader of its config as its class completes it."""
    completed = catalogue.by_class(config, catalogue.family(model_type))
    if completed is None:
        inner = config.values.get("text_config")
        values = inner if isinstance(inner, Mapping) else config.values
        return str(values.get("model_type", model_type)), values.get
    text = completed.part("text_config") or completed
    return text.kind.model_type or model_type, text.get


# --- the tensors of each layer ----------------------------------------------------------------


class _Block(NamedTuple):
    """The shapes of one block's projections and convolutions, by name."""

    layer: int
    shapes: dict[str, tuple[int, ...]]


def _blocks_by_path(expectation: Expectation) -> Mapping[str, _Block]:
    """Return the blocks that attend or have states, by path, in natural order."""
    outline = expectation.outline
    tensors = (
        outline.tensors
        if outline
        else (one._replace(name=escaped_name(one.name)) for one in expectation.tensors)
    )
    shapes_by_path = {
        path: shapes for pattern, shapes in _blocks(tensors) for path in expand(pattern)
    }
    return {
        path: _Block(layer, shapes_by_path[path])
        for path in sorted(shapes_by_path, key=natural_key)
        if (layer := _layer(path)) is not None
    }


def _blocks(tensors: Iterable[ExpectedTensor]) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Yield each folded path with the shapes of its tensors."""
    shapes_by_path: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in tensors:
        # Layers for drafting are not run in plain decoding.
        if tensor.name.endswith(_ENDS) and tensor.role is not Role.EXTRA:
            path, _, last = tensor.name.removesuffix(".weight").rpartition(".")
            shapes_by_path.setdefault(path, {})[last] = tensor.shape
    keeping = {*_KEYS, *_FUSED, *_STATES}
    return ((path, shapes) for path, shapes in shapes_by_path.items() if keeping & shapes.keys())


@lru_cache(maxsize=4096)  # models share most of these paths
def _layer(path: str) -> int | None:
    """Return the layer number in a path; None if the path is not in a decoder layer."""
    match = _LAYER.fullmatch(path)
    return None if match is None or _TOWER.search(f"{path}.") else int(match["layer"])


# --- what a layer keeps -------------------------------------------------------------------------


def _cached_elements(shapes: Mapping[str, tuple[int, ...]], model_type: str, read: Read) -> int:
    """Return the number of elements that an attention block keeps of each token."""
    if "kv_a_proj_with_mqa" in shapes:  # a latent vector, and a rotary key
        return shapes["kv_a_proj_with_mqa"][0]
    for key, value in (("k_proj", "v_proj"), ("k", "v")):
        if key in shapes:
            return shapes[key][0] + shapes.get(value, shapes[key])[0]
    fused = next((name for name in _FUSED if name in shapes), None)
    if fused is None:
        return 0
    if fused == "c_attn":  # queries are as wide as the input; GPT-2's Conv1D stores (in, out)
        return max(shapes[fused]) - min(shapes[fused])
    queries = next((shapes[name][1] for name in _OUTPUT if name in shapes), 0)
    if model_type == "falcon" and read("new_decoder_architecture"):
        return 2 * queries  # keys and values are broadcast to the query heads before they are kept
    return shapes[fused][0] - queries


def _states(
    shapes: Mapping[str, tuple[int, ...]], model_type: str, read: Read
) -> tuple[int, int] | tuple[()]:
    """Return two numbers of elements of a block's states: in the cache's dtype, and in F32.

    Return () if the block has no states.
    """
    convolution = next((shapes[name] for name in _STATES if name in shapes), None)
    if convolution is None:
        return ()
    kept = prod(convolution)  # (channels, 1, columns)
    if model_type == "mamba":
        return kept, convolution[0] * read("state_size")
    if model_type == "mamba2":
        return kept + read("num_heads") * read("head_dim") * read("state_size"), 0
    if model_type.startswith("qwen3_5"):
        heads, key = read("linear_num_value_heads"), read("linear_key_head_dim")
        return kept, heads * key * read("linear_value_head_dim")
    return kept, 0


# --- windows --------------------------------------------------------------------------------------

# Types whose config class makes every n-th layer attend to all tokens if `layer_types` is null.
_FULL_LAYERS = {"cohere2": 4, "gemma2": 2, "gemma3_text": 6, "gemma4_text": 6, "gpt_oss": 2}


class _Windows:
    """The sliding window of each layer."""

    def __init__(self, model_type: str, read: Read) -> None:
        types, window = read("layer_types"), read("sliding_window")
        self._types = types if isinstance(types, list) else None
        chosen = read("use_sliding_window")  # null unless the class has the key
        known = type(window) is int and window > 0 and chosen is not False
        self._window = window if known else None
        first = read("max_window_layers")
        self._first = first if type(first) is int else 0
        every = read("sliding_window_pattern")
        self._every = _FULL_LAYERS.get(model_type, 0) and (
            every if type(every) is int and every > 0 else _FULL_LAYERS[model_type]
        )
        self._alternates = model_type == "qwen2_moe"

    def window(self, layer: int) -> int | None:
        """Return a layer's window in tokens; None if it attends to all tokens."""
        if self._types is not None:
            sliding = layer < len(self._types) and self._types[layer] in _SLIDING
        elif self._every:
            sliding = bool((layer + 1) % self._every)
        elif self._alternates:
            sliding = layer % 2 == 0 and layer < self._first
        else:
            sliding = layer >= self._first
        return self._window if sliding else None
