"""What a model takes in memory, as numbers: loaded in a dtype, with its cache, and in training.

Activations, workspaces of kernels and the program itself come on top of all of them.
"""

from collections.abc import Iterable

from msgspec import Struct

from auditor.report import KVCache, Report, Unaudited
from auditor.tensors import DTYPE_BITS, FOUR_BIT

_BYTE = 8
_LEAST_CACHE_BITS = 16  # weight-only quantization computes, and keeps its cache, in 16 bits
_CACHE = "BF16"
_FOUR_BITS = 4

COMMON_DTYPES = ("F32", "BF16", "I8", FOUR_BIT)


class LoadingNeed(Struct, frozen=True, kw_only=True):
    """A model in one dtype, in bytes.

    weights = parameters x bits / 8, every parameter alike: what quantizes leaves embeddings and
    norms wider and stores scales beside them, so that I8 and 4-bit are the least it can be.
    cache = batch x tokens x sum over layers of (keys + values) x bits / 8: 2 x num_key_value_heads
    x head_dim elements a layer and token, as in "Efficiently Scaling Transformer Inference" (Pope
    et al. 2022, arXiv 2211.05102, section 3.3) and in transformers' DynamicCache.
    """

    dtype: str
    bits: int
    weights: int
    cache_dtype: str | None  # None: it decodes nothing
    cache_per_token: int | None  # of one sequence, while no window is full
    cache: int | None  # of all the tokens of all sequences; None: no context was asked for

    @property
    def total(self) -> int:
        return self.weights + (self.cache or 0)


class TrainingNeed(Struct, frozen=True, kw_only=True):
    """Bytes a parameter that training all of a model with Adam takes: an estimate.

    Adam keeps two moments of each parameter (Kingma and Ba 2015, algorithm 1).
    """

    precision: str
    weights: int
    gradients: int
    adam: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.adam


# "mixed" is what transformers' Trainer does with `bf16=True`: 6 + 4 + 8 bytes, of its documentation
# (model_memory_anatomy). Software that keeps gradients in 16 bits has 16 in all, 2 + 2 + 12 (ZeRO,
# Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1).
TRAINING = (
    TrainingNeed(precision="F32", weights=4, gradients=4, adam=8),
    TrainingNeed(precision="mixed", weights=2 + 4, gradients=4, adam=8),
    TrainingNeed(precision="BF16", weights=2, gradients=2, adam=4),
)


def parameters_loaded(outcome: Report | Unaudited) -> int | None:
    """Those of the target class, which loading makes; else those that are stored."""
    if outcome.expected is not None:
        return outcome.expected.parameters
    return outcome.observed.parameters if outcome.observed else None


def loading_needs(
    outcome: Report | Unaudited,
    dtypes: Iterable[str],
    *,
    context: int | None = None,
    batch: int = 1,
    cache_dtype: str | None = None,
) -> tuple[LoadingNeed, ...]:
    """One row a dtype; none where nothing says how many parameters there are."""
    parameters, cache = parameters_loaded(outcome), outcome.kv_cache
    if parameters is None:
        return ()
    return tuple(_loaded(parameters, cache, dtype, cache_dtype, context, batch) for dtype in dtypes)


def _loaded(  # noqa: PLR0913, PLR0917 - what there is, and what was asked for
    parameters: int,
    cache: KVCache | None,
    dtype: str,
    cache_dtype: str | None,
    context: int | None,
    batch: int,
) -> LoadingNeed:
    bits = bits_of(dtype)
    kept = cache_dtype or (dtype if bits >= _LEAST_CACHE_BITS else _CACHE)
    width = bits_of(kept)
    held = None if cache is None or context is None else batch * cache.elements(context)
    return LoadingNeed(
        dtype=dtype,
        bits=bits,
        weights=in_bytes(parameters, bits),
        cache_dtype=kept if cache else None,
        cache_per_token=in_bytes(cache.per_token, width) if cache else None,
        cache=None if held is None else in_bytes(held, width),
    )


def bits_of(dtype: str) -> int:
    """The width of one number; KeyError for what is no dtype."""
    return _FOUR_BITS if dtype == FOUR_BIT else DTYPE_BITS[dtype]


def in_bytes(numbers: int, bits: int) -> int:
    """Whole bytes."""
    return -(-numbers * bits // _BYTE)
