"""`audit memory` as text and JSON: whether a model fits a card, and what it takes in each dtype."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from auditor.formats import fits
from auditor.formats.json_values import json_text
from auditor.formats.memory_needs import (
    BLOCK,
    BYTE,
    TRAINING,
    LoadingNeed,
    Use,
    largest_layer,
    loading_needs,
    parameters_loaded,
)
from auditor.formats.tables import ByteCount, Heading, SimpleTable, styled_rows
from auditor.formats.text import StyledLine, cells_of, columns, counted, lines_text, styled, wrapped
from auditor.report import KVCache, Observed, Report, Unaudited

_SCHEMA = 1


# --- for people ---------------------------------------------------------------------------------


def render(
    outcome: Report | Unaudited, use: Use | None = None, *, width: int = 80, color: bool = False
) -> str:
    """Return tables of weights as stored, weights loaded in each dtype, the cache, and training.

    Tables whose numbers are unknown are left out.
    """
    use = use or Use()
    title = outcome.model or outcome.requested
    lines = [
        *wrapped(styled(f"{title}: {outcome.target}" if outcome.target else title, "bold"), width)
    ]
    lines += (*fits.lines(outcome, use, width), ())
    if outcome.observed and outcome.observed.weights:
        lines += (*_lines(_stored(outcome.observed), width), ())
    needs = loading_needs(outcome, use)
    if needs:
        lines += _lines(_loading(outcome, needs, use), width)
        sentences = (*_parameters(outcome, needs), *_cache(outcome, needs))
        lines += (part for sentence in sentences for part in wrapped(sentence, width))
        if use.context is not None and outcome.kv_cache:
            lines += ((), *_lines(_kept(needs, use), width))
        lines += ((), *_lines(_training(parameters_loaded(outcome) or 0), width))
        lines += (part for sentence in _COUNTED for part in wrapped(sentence, width))
    return lines_text(lines, color=color)


# Columns that a narrow terminal does without, the first ones first.
_SPARE = (
    {"bits a parameter"},
    {"bytes each"},
    {"bytes"},
    {"tensors"},
    {"weights", "gradients", "moments"},
)


def _lines(table: SimpleTable, width: int) -> Iterator[StyledLine]:
    """Yield the lines of a table, without as many spare columns as it takes to fit the width."""
    kept = list(range(len(table.columns)))
    lines: list[StyledLine] = []
    for spare in (set[str](), *_SPARE):
        if spare <= set(table.columns):
            kept = [at for at in kept if table.columns[at] not in spare]
        rows = [[row[at] for at in kept] for row in styled_rows(table, unknown="")]
        lines = [*columns(rows, right=range(1, len(kept)))]
        if all(cells_of("".join(text for text, _ in line)) <= width for line in lines):
            break
    yield from lines


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
    bits = BYTE * stored / parameters if parameters else None
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
        cells = [need.dtype, f"{need.bits / BYTE:g}", need.weights, ByteCount(need.weights)]
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
    if any(need.bits <= BYTE for need in needs):
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
        "fit": fits.as_object(outcome, use),
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
