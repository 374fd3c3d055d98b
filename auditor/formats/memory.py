"""The memory that a model needs when loaded, with a cache, and in training; as text and JSON.

The figures exclude activations, workspaces of kernels and the program itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from auditor.errors import UsageError
from auditor.formats.json_values import json_text
from auditor.formats.tables import ByteCount, Heading, SimpleTable, styled_rows
from auditor.formats.text import StyledLine, columns, counted, lines_text, styled, wrapped
from auditor.messages import meant, quoted
from auditor.report import KVCache, ModuleRow, Observed, Report, Unaudited
from auditor.tensors import DTYPE_BITS, FOUR_BIT, SPELT_DTYPES, Depth, dtype_as_stored

_SCHEMA = 1
_BYTE = 8
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
    return -(-numbers * bits // _BYTE)


# --- for people ---------------------------------------------------------------------------------


def render(
    outcome: Report | Unaudited, use: Use | None = None, *, width: int = 80, color: bool = False
) -> str:
    """Return tables of weights as stored, weights loaded in each dtype, the cache, and training.

    Tables whose numbers are unknown are left out.
    """
    use = use or Use()
    title = outcome.model or outcome.requested
    lines = [styled(f"{title}: {outcome.target}" if outcome.target else title, "bold"), ()]
    if outcome.observed and outcome.observed.weights:
        lines += (*_lines(_stored(outcome.observed)), ())
    needs = loading_needs(outcome, use)
    if needs:
        lines += _lines(_loading(outcome, needs, use))
        sentences = (*_parameters(outcome, needs), *_cache(outcome, needs))
        lines += (part for sentence in sentences for part in wrapped(sentence, width))
        if use.context is not None and outcome.kv_cache:
            lines += ((), *_lines(_kept(needs, use)))
        lines += ((), *_lines(_training(parameters_loaded(outcome) or 0)))
        lines += (part for sentence in _COUNTED for part in wrapped(sentence, width))
    return lines_text(lines, color=color)


def _lines(table: SimpleTable) -> Iterator[StyledLine]:
    return columns(styled_rows(table, unknown=""), right=range(1, len(table.columns)))


def _stored(observed: Observed) -> SimpleTable:
    rows = [
        (
            row.dtype,
            row.tensors,
            row.parameters,
            row.bytes,
            ByteCount(row.bytes),
            row.bits_per_parameter,
        )
        for row in observed.weights
    ]
    parameters = sum(row.parameters for row in observed.weights)
    stored = sum(row.bytes for row in observed.weights)
    bits = _BYTE * stored / parameters if parameters else None
    rows.append((Heading("all"), observed.tensors, parameters, stored, ByteCount(stored), bits))
    names = ("stored as", "tensors", "parameters", "bytes", "", "bits a parameter")
    return SimpleTable("stored", names, tuple(rows))


def _loading(outcome: Report | Unaudited, needs: tuple[LoadingNeed, ...], use: Use) -> SimpleTable:
    """Return a table with a row for each dtype, and columns for the cache if the model decodes."""
    names = ["loaded as", "bytes each", "bytes", "weights", "largest layer"]
    unknown = outcome.unknown_cache
    if unknown:
        names.append("cache")
    elif needs[0].cache_dtype is not None:
        names += ["cache a token"] if use.context is None else ["cache", "both"]
    rows = []
    for need in needs:
        cells = [need.dtype, f"{need.bits / _BYTE:g}", need.weights, ByteCount(need.weights)]
        cells.append(None if need.largest_layer is None else ByteCount(need.largest_layer))
        if unknown:
            cells.append(unknown)
        if need.cache is not None:
            cells += [ByteCount(need.cache), ByteCount(need.total)]
        elif need.cache_per_token is not None:
            cells.append(ByteCount(need.cache_per_token))
        rows.append(tuple(cells))
    return SimpleTable("loaded", tuple(names), tuple(rows))


def _parameters(outcome: Report | Unaudited, needs: tuple[LoadingNeed, ...]) -> Iterator[str]:
    """Yield the number of parameters; for 8 bits or less, add a note on quantized weights."""
    observed, expected = outcome.observed, outcome.expected
    stored = observed.parameters if observed else None
    if expected is None:
        yield f"{stored:,} parameters are stored"
    else:
        others = "" if stored in {None, expected.parameters} else f"; {stored:,} are stored"
        yield f"{expected.parameters:,} parameters of {outcome.target or ''}{others}"
    if any(need.bits <= _BYTE for need in needs):
        yield "quantized weights take more: they have scales, and some tensors stay wider"


def _cache(outcome: Report | Unaudited, needs: tuple[LoadingNeed, ...]) -> Iterator[str]:
    layer = largest_layer(outcome.modules)
    if layer is not None:
        yield f"largest layer: {layer.name}, {layer.parameters:,} parameters"
    cache = outcome.kv_cache
    if cache is None:
        return
    yield f"KV cache: {_layers(cache)} = {cache.per_token:,} elements a token"
    if cache.states or cache.wide_states:
        yield (
            f"  and states of convolutions and recurrences: {cache.states:,} elements"
            + (f", {cache.wide_states:,} in F32" if cache.wide_states else "")
        )
    if cache.cross:
        fixed = f"; it has {cache.frames:,}" if cache.frames else ", which come on top"
        yield f"  and {cache.cross:,} for each token of the encoder{fixed}"
    narrow = {need.dtype: need.cache_dtype for need in needs if need.cache_dtype != need.dtype}
    if narrow:
        yield f"  with {' and '.join(narrow)} weights in {next(iter(narrow.values()))}"


def _kept(needs: tuple[LoadingNeed, ...], use: Use) -> SimpleTable:
    """Return a table of the complete cache, with a row for each kind of cache in each dtype."""
    rows: dict[tuple[str, str | None], int | None] = {}
    for need in needs:
        rows["DynamicCache of transformers", need.cache_dtype] = need.cache
        rows["StaticCache of transformers", need.cache_dtype] = need.static_cache
        rows[f"vLLM, blocks of {BLOCK} tokens", need.cache_dtype] = need.paged_cache
    title = f"{use.context or 0:,} tokens x {counted(use.batch, 'sequence')}"
    cells = tuple(
        (name, dtype, "not known" if size is None else size, size and ByteCount(size))
        for (name, dtype), size in rows.items()
    )
    return SimpleTable("cache", (title, "cache in", "bytes", ""), cells)


def _layers(cache: KVCache) -> str:
    """Return `32 layers x 2,048`, with a term for each pair of elements per token and window."""
    kinds = Counter((layer.elements, layer.window) for layer in cache.layers if layer.elements)
    parts = (
        f"{count} layers x {elements:,}" + (f" (window {window:,})" if window else "")
        for (elements, window), count in kinds.items()
    )
    return " + ".join(parts) or "no layer attends"


_COUNTED = (
    "counted: weights (mixed: also in 16 bits), gradients and both moments of every parameter",
    "not counted: activations, which grow with batch and tokens, buffers, and the program itself",
)


def _training(parameters: int) -> SimpleTable:
    rows = []
    for need in TRAINING:
        bytes_each = " + ".join(map(str, need.parts.values()))
        sizes = (ByteCount(part * parameters) for part in (*need.parts.values(), need.total))
        rows.append((need.precision, bytes_each, *sizes))
    names = ("training with Adam", "bytes each", "weights", "gradients", "moments", "all")
    return SimpleTable("training", names, tuple(rows))


# --- as JSON ------------------------------------------------------------------------------------


def as_json(outcome: Report | Unaudited, use: Use | None = None) -> str:
    """Return the tables as one JSON object on one line."""
    return json_text(as_object(outcome, use or Use())) + "\n"


def as_object(outcome: Report | Unaudited, use: Use) -> dict[str, Any]:
    """Return the tables as a JSON object, all sizes in bytes."""
    layer = largest_layer(outcome.modules)
    observed, expected, count = outcome.observed, outcome.expected, parameters_loaded(outcome)
    return {
        "schema": _SCHEMA,
        "requested": outcome.requested,
        "model": outcome.model,
        "commit": outcome.commit,
        "target": outcome.target,
        "reason": outcome.reason if isinstance(outcome, Unaudited) else None,
        "detail": outcome.detail if isinstance(outcome, Unaudited) else None,
        "parameters": expected.parameters if expected else None,
        "stored_parameters": observed.parameters if observed else None,
        "stored": [asdict(row) for row in observed.weights] if observed else [],
        "context": use.context,
        "batch": use.batch,
        "loaded": [asdict(need) | {"total": need.total} for need in loading_needs(outcome, use)],
        "largest_layer": layer and layer._asdict(),
        "cache_unknown": outcome.unknown_cache,
        "training_estimate": [
            {
                "precision": need.precision,
                "bytes_per_parameter": need.total,
                **{name: part * (count or 0) for name, part in need.parts.items()},
                "total": need.total * (count or 0),
            }
            for need in (() if count is None else TRAINING)
        ],
    }
