"""What a model takes in memory, for people and as JSON: loaded, with a cache, in training."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict

from auditor.formats.layout import (
    Styled,
    StyledLine,
    columns,
    header_row,
    lines_text,
    styled,
    wrapped,
)
from auditor.formats.memory_needs import (
    COMMON_DTYPES,
    TRAINING,
    LoadingNeed,
    bits_of,
    in_bytes,
    loading_needs,
    parameters_loaded,
)
from auditor.formats.text import printable, size
from auditor.report import KVCache, Observed, Report, Unaudited

_SCHEMA = 1
_WHOLE_BYTE = 8


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
    title = printable(outcome.model or outcome.requested)
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
        rows.append((printable(one.dtype), *counts, each))
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
        cells = [row.dtype, f"{row.bits / _WHOLE_BYTE:g}", f"{row.weights:,}", size(row.weights)]
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
        yield f"{expected.parameters:,} parameters of {printable(outcome.target or '')}{others}"
    if any(row.bits <= _WHOLE_BYTE for row in rows):
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
    """The same as one object on one line, all sizes in bytes."""
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
    return json.dumps(found) + "\n"


def _training_objects(parameters: int) -> list[dict[str, Any]]:
    return [
        {"precision": one.precision, "bytes_per_parameter": one.total}
        | {part: getattr(one, part) * parameters for part in ("weights", "gradients", "adam")}
        | {"total": one.total * parameters}
        for one in TRAINING
    ]
