"""The memory that a model takes, for people and as JSON: loaded, with a cache, in training.

Activations, workspaces of kernels and the program itself come on top of all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from auditor.formats.json_values import json_text
from auditor.formats.text import (
    Styled,
    StyledLine,
    columns,
    header_row,
    lines_text,
    size,
    styled,
    wrapped,
)
from auditor.report import KVCache, Observed, Report, Unaudited
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
    """Return the parameters of the target class, which loading makes; else the stored ones."""
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


# --- for people and as JSON --------------------------------------------------------------------


_SCHEMA = 1


def render(  # noqa: PLR0913 - one keyword for each choice a caller has
    outcome: Report | Unaudited,
    *,
    dtypes: Sequence[str] = COMMON_DTYPES,
    context: int | None = None,
    batch: int = 1,
    cache_dtype: str | None = None,
    width: int = 80,
    color: bool = False,
) -> str:
    """Weights as stored and in some dtypes, with the cache of `context` tokens; then training.

    A few lines at the most where no header was read: what the config implies alone.
    """
    title = outcome.model or outcome.requested
    lines = [styled(f"{title}: {outcome.target}" if outcome.target else title, "bold"), ()]
    if outcome.observed and outcome.observed.weights:
        lines += (*_stored(outcome.observed), ())
    rows = loading_needs(outcome, dtypes, context=context, batch=batch, cache_dtype=cache_dtype)
    if rows:
        lines += _loading(rows, context)
        sentences = (*_parameters(outcome, rows), *_cache(outcome.kv_cache, rows, context, batch))
        lines += (part for sentence in sentences for part in wrapped(sentence, width))
        lines += ((), *_training(parameters_loaded(outcome) or 0))
        lines.append(styled("an estimate: every parameter is trained; activations come on top"))
    return lines_text(lines, color=color)


def _table(*rows: Sequence[Styled | str]) -> Iterator[StyledLine]:
    """A name, and figures to the right."""
    return columns(rows, right=range(1, len(rows[0])))


def _stored(observed: Observed) -> Iterator[StyledLine]:
    rows: list[Sequence[Styled | str]] = []
    for one in observed.weights:
        each = "" if one.bits_per_parameter is None else f"{one.bits_per_parameter:.2f}"
        counts = (f"{one.tensors:,}", f"{one.parameters:,}", f"{one.bytes:,}", size(one.bytes))
        rows.append((one.dtype, *counts, each))
    parameters = sum(one.parameters for one in observed.weights)
    stored = sum(one.bytes for one in observed.weights)
    counts = (f"{observed.tensors:,}", f"{parameters:,}", f"{stored:,}", size(stored))
    rows.append(
        (*header_row("all"), *counts, f"{8 * stored / parameters:.2f}" if parameters else "")
    )
    names = ("stored as", "tensors", "parameters", "bytes", "", "bits a parameter")
    return _table(header_row(*names), *rows)


def _loading(rows: Sequence[LoadingNeed], context: int | None) -> Iterator[StyledLine]:
    """A row a dtype; columns of a cache where something decodes."""
    decodes = rows[0].cache_dtype is not None
    cache = (("cache a token",) if context is None else ("cache", "both")) if decodes else ()
    made: list[Sequence[Styled | str]] = [
        header_row("loaded as", "bytes each", "bytes", "weights", *cache)
    ]
    for row in rows:
        cells = [row.dtype, f"{row.bits / _BYTE:g}", f"{row.weights:,}", size(row.weights)]
        if row.cache_per_token is not None:
            kept = row.cache_per_token if row.cache is None else row.cache
            cells += [size(kept)] if context is None else [size(kept), size(row.total)]
        made.append(cells)
    return _table(*made)


def _parameters(outcome: Report | Unaudited, rows: Sequence[LoadingNeed]) -> Iterator[str]:
    """How many numbers the table multiplies, and what it does not know of quantization."""
    observed, expected = outcome.observed, outcome.expected
    stored = observed.parameters if observed else None
    if expected is None:
        yield f"{stored:,} parameters are stored"
    else:
        others = "" if stored in {None, expected.parameters} else f"; {stored:,} are stored"
        yield f"{expected.parameters:,} parameters of {outcome.target or ''}{others}"
    if any(row.bits <= _BYTE for row in rows):
        yield "quantized weights take more: scales come with them, and some tensors stay wider"


def _cache(
    cache: KVCache | None, rows: Sequence[LoadingNeed], context: int | None, batch: int
) -> Iterator[str]:
    if cache is None:
        return
    yield f"KV cache: {_layers(cache)} = {cache.per_token:,} elements a token"
    kept = rows[0].cache_dtype or ""
    width = bits_of(kept)
    if cache.expanded_per_token != cache.per_token:
        more = in_bytes(cache.expanded_per_token, width)
        yield f"  as transformers keeps it, keys and values written out: {more:,} bytes in {kept}"
    if cache.cross:
        yield f"  and {cache.cross:,} for each token of the encoder"
    if context is not None:
        yield f"  the cache of {context:,} tokens in {batch} sequence(s)"
    narrow = [row.dtype for row in rows if row.cache_dtype != row.dtype]
    if narrow:
        [other] = {row.cache_dtype for row in rows if row.dtype in narrow}
        yield f"  beside {' and '.join(narrow)} weights in {other}"


def _layers(cache: KVCache) -> str:
    """`32 layers x 2,048`; layers of other widths, or with a window, apart."""
    kinds: dict[tuple[int, int | None], int] = {}
    for layer in cache.layers:
        key = (layer.elements, layer.window)
        kinds[key] = kinds.get(key, 0) + 1
    parts = (
        f"{count} layers x {elements:,}" + (f" (window {window:,})" if window else "")
        for (elements, window), count in kinds.items()
    )
    return " + ".join(parts) or "no layer attends"


def _training(parameters: int) -> Iterator[StyledLine]:
    rows = []
    for one in TRAINING:
        parts = (one.weights, one.gradients, one.adam, one.total)
        each = f"{one.weights} + {one.gradients} + {one.adam}"
        rows.append((one.precision, each, *(size(part * parameters) for part in parts)))
    names = ("bytes each", "weights", "gradients", "moments", "all")
    return _table(header_row("training with Adam", *names), *rows)


def as_json(
    outcome: Report | Unaudited,
    *,
    dtypes: Sequence[str] = COMMON_DTYPES,
    context: int | None = None,
    batch: int = 1,
    cache_dtype: str | None = None,
) -> str:
    """Write the tables as one JSON object on one line, all sizes in bytes."""
    rows = loading_needs(outcome, dtypes, context=context, batch=batch, cache_dtype=cache_dtype)
    observed, expected, count = outcome.observed, outcome.expected, parameters_loaded(outcome)
    found = {
        "schema": _SCHEMA,
        "requested": outcome.requested,
        "model": outcome.model,
        "commit": outcome.commit,
        "target": outcome.target,
        "reason": outcome.reason if isinstance(outcome, Unaudited) else None,
        "detail": outcome.detail if isinstance(outcome, Unaudited) else None,
        "parameters": expected.parameters if expected else None,
        "stored_parameters": observed.parameters if observed else None,
        "stored": [asdict(one) for one in observed.weights] if observed else [],
        "context": context,
        "batch": batch,
        "loaded": [asdict(row) | {"total": row.total} for row in rows],
        "training_estimate": [] if count is None else _training_objects(count),
    }
    return json_text(found) + "\n"


def _training_objects(parameters: int) -> list[dict[str, Any]]:
    return [
        {"precision": one.precision, "bytes_per_parameter": one.total}
        | {part: getattr(one, part) * parameters for part in ("weights", "gradients", "adam")}
        | {"total": one.total * parameters}
        for one in TRAINING
    ]
