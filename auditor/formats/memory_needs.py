"""The bytes that a model needs when loaded, with a cache, and in training: numbers alone.

The figures exclude activations, workspaces of kernels and the program itself.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from auditor.errors import UsageError
from auditor.messages import meant, quoted
from auditor.report import KVCache, ModuleRow, Report, Unaudited
from auditor.tensors import DTYPE_BITS, FOUR_BIT, SPELT_DTYPES, Depth, dtype_as_stored

BYTE = 8
_LEAST_CACHE_BITS = 16  # narrower dtypes are for weights only; the cache then has 16 bits
_CACHE = "BF16"
_FOUR_BITS = 4
BLOCK = 16  # tokens in a block of vLLM, unless --block-size changes it

COMMON_DTYPES = ("F32", "BF16", "I8", FOUR_BIT)


TO_LAYERS = Depth(2**31, 0)  # all modules down to the numbered layers


def checked_dtype(option: str, name: str) -> str:
    """Return a dtype in safetensors' spelling; raise UsageError if it is not a dtype."""
    stored = dtype_as_stored(name)
    if stored == FOUR_BIT or stored in DTYPE_BITS:
        return stored
    hint = meant(name, (*DTYPE_BITS, *SPELT_DTYPES))
    raise UsageError(
        f"{option} is {quoted(name)}, expected a dtype{hint}; F32, BF16, F16, F8_E4M3, int8 and "
        f"4bit are some"
    )


class Use(Struct, frozen=True, kw_only=True):
    """The way in which a model is loaded and used."""

    dtypes: tuple[str, ...] = COMMON_DTYPES
    context: int | None = None  # tokens that the cache holds
    batch: int = 1
    cache_dtype: str | None = None  # None: the dtype of the weights, or BF16 for narrower weights
    concurrency: int | None = None  # sequences whose cache is paged, in place of `batch`
    gpu: str | None = None  # a card's name or size; None: the cards of the table


class LoadingNeed(Struct, frozen=True, kw_only=True):
    """The bytes of memory that a loaded model takes in one dtype.

    weights = parameters x bits / 8 for every parameter. Real quantized models keep embeddings and
    norms in wider dtypes and store scales, so the results for I8 and 4-bit are lower bounds.
    cache = batch x tokens x sum over layers of (keys + values) x bits / 8: 2 x num_key_value_heads
    x head_dim elements per layer and token, as in "Efficiently Scaling Transformer Inference" (Pope
    et al. 2022, arXiv 2211.05102, section 3.3) and in transformers' DynamicCache. Windows, states
    and cross attention: see KVCache.
    """

    dtype: str
    bits: int
    weights: int
    largest_layer: int | None  # bytes
    cache_dtype: str | None  # None: the model does not decode, or its cache is not known
    cache_per_token: int | None  # bytes per token of one sequence, while no window is full
    cache_states: int | None  # bytes of one sequence, whatever the number of tokens
    cache: int | None  # bytes of all tokens of all sequences; None: no context given
    static_cache: int | None  # likewise, in transformers' StaticCache
    paged_cache: int | None  # likewise, in blocks as vLLM allocates; None: not known

    @property
    def total(self) -> int:
        return self.weights + (self.cache or 0)


class TrainingNeed(Struct, frozen=True, kw_only=True):
    """The estimated bytes for each parameter when a complete model is trained with Adam.

    Adam keeps two moments of each parameter (Kingma and Ba 2015, algorithm 1).
    """

    precision: str
    weights: int
    gradients: int
    adam: int

    @property
    def parts(self) -> dict[str, int]:
        return {"weights": self.weights, "gradients": self.gradients, "adam": self.adam}

    @property
    def total(self) -> int:
        return sum(self.parts.values())


# "mixed" is what transformers' Trainer does with `bf16=True`: 6 + 4 + 8 bytes, of its documentation
# (model_memory_anatomy). Software that keeps gradients in 16 bits has 16 in all, 2 + 2 + 12 (ZeRO,
# Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1).
TRAINING = (
    TrainingNeed(precision="F32", weights=4, gradients=4, adam=8),
    TrainingNeed(precision="mixed", weights=2 + 4, gradients=4, adam=8),
    TrainingNeed(precision="BF16", weights=2, gradients=2, adam=4),
)


def parameters_loaded(outcome: Report | Unaudited) -> int | None:
    """Return the expected number of parameters, or if unknown, the stored number; else None."""
    if outcome.expected is not None:
        return outcome.expected.parameters
    return outcome.observed.parameters if outcome.observed else None


def loading_needs(outcome: Report | Unaudited, use: Use) -> tuple[LoadingNeed, ...]:
    """Return the memory needs for each dtype; () if the number of parameters is unknown."""
    parameters, cache = parameters_loaded(outcome), outcome.kv_cache
    if parameters is None:
        return ()
    layer = largest_layer(outcome.modules)
    needs = []
    for dtype in use.dtypes:
        bits = bits_of(dtype)
        cache_dtype = use.cache_dtype or (dtype if bits >= _LEAST_CACHE_BITS else _CACHE)
        width = bits_of(cache_dtype)
        need = LoadingNeed(
            dtype=dtype,
            bits=bits,
            weights=in_bytes(parameters, bits),
            largest_layer=in_bytes(layer.parameters, bits) if layer else None,
            cache_dtype=cache_dtype if cache else None,
            cache_per_token=in_bytes(cache.per_token, width) if cache else None,
            cache_states=in_bytes(cache.states + cache.fixed_cross, width)
            + in_bytes(cache.wide_states, DTYPE_BITS["F32"])
            if cache
            else None,
            **_caches(cache, use, width),
        )
        needs.append(need)
    return tuple(needs)


def _caches(cache: KVCache | None, use: Use, width: int) -> dict[str, int | None]:
    """Map fields of LoadingNeed to the bytes of the complete cache; None for unknown bytes."""
    if cache is None or use.context is None:
        return dict.fromkeys(("cache", "static_cache", "paged_cache"))
    wide = in_bytes(cache.wide_states, DTYPE_BITS["F32"])
    paged = cache.paged(use.context, BLOCK)
    return {
        "cache": use.batch * (in_bytes(cache.elements(use.context), width) + wide),
        "static_cache": use.batch
        * (in_bytes(cache.elements(use.context, static=True), width) + wide),
        "paged_cache": None if paged is None else use.batch * in_bytes(paged, width),
    }


class LargestLayer(NamedTuple):
    """The largest module that is not split between devices."""

    name: str
    parameters: int


def largest_layer(rows: Iterable[ModuleRow]) -> LargestLayer | None:
    """Return the largest layer that `accelerate estimate-memory` reports; None without modules.

    accelerate splits a model into its modules, except those of `_no_split_modules`: in transformers
    the numbered layers, and for encoders the `embeddings`.
    """
    sizes = {
        row.prefix: row.parameters if row.expected is None else row.expected
        for row in rows
        if row.prefix
    }
    split = {prefix.rpartition(".")[0] for prefix in sizes}
    whole = {
        prefix
        for prefix in sizes
        for last in (prefix.rpartition(".")[2],)
        if last.isdecimal() or last == "embeddings"
    }
    candidates = [
        LargestLayer(prefix, size)
        for prefix, size in sizes.items()
        if size is not None and (prefix in whole or prefix not in split)
    ]
    return max(candidates, key=lambda layer: layer.parameters, default=None)


def bits_of(dtype: str) -> int:
    """Return the number of bits that one number of a dtype takes.

    Raise KeyError if the dtype is unknown.
    """
    return _FOUR_BITS if dtype == FOUR_BIT else DTYPE_BITS[dtype]


def in_bytes(numbers: int, bits: int) -> int:
    """Return the number of bytes that `numbers` numbers of `bits` bits each take, rounded up."""
    return -(-numbers * bits // BYTE)
