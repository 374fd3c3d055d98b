"""What a checkpoint takes in memory, for people: its weights by dtype, and its cache a token."""

import io
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from auditor.formats.memory_size import size
from auditor.formats.plain_console import plain_console, without_trailing_spaces
from auditor.formats.text import printable
from auditor.report import KVCache, Observed, Report, Unaudited


def render(  # noqa: PLR0913 - one keyword for each choice a caller has
    outcome: Report | Unaudited,
    *,
    bits: int,
    dtype: str,
    context: int | None = None,
    batch: int = 1,
    width: int = 80,
    color: bool = False,
) -> str:
    """Weights as stored and in a dtype of `bits` bits; the cache of `context` tokens in it.

    A few lines at the most where no header was read: what the config implies alone.
    """
    text = io.StringIO()
    console = plain_console(text, color=color)
    title = printable(outcome.model or outcome.requested)
    console.print(Text(f"{title}: {outcome.target}" if outcome.target else title, style="bold"))
    console.print()
    if outcome.observed and outcome.observed.weights:
        console.print(_table(outcome.observed), width=width)
        console.print()
    for line in (*_weights(outcome, bits, dtype), *_cache(outcome, bits, dtype, context, batch)):
        console.print(Text(line), soft_wrap=True)
    return without_trailing_spaces(text)


def _table(observed: Observed) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("stored as", "tensors", "parameters", "bytes", "", "bits a parameter"):
        table.add_column(name, justify="left" if name == "stored as" else "right", no_wrap=True)
    for one in observed.weights:
        each = "" if one.bits_per_parameter is None else f"{one.bits_per_parameter:.2f}"
        table.add_row(
            Text(printable(one.dtype)),
            *map(Text, (f"{one.tensors:,}", f"{one.parameters:,}", f"{one.bytes:,}")),
            Text(size(one.bytes)),
            Text(each),
        )
    parameters = sum(one.parameters for one in observed.weights)
    stored = sum(one.bytes for one in observed.weights)
    table.add_row(
        Text("all", style="bold"),
        *map(Text, (f"{observed.tensors:,}", f"{parameters:,}", f"{stored:,}", size(stored))),
        Text(f"{8 * stored / parameters:.2f}" if parameters else ""),
    )
    return table


def _weights(outcome: Report | Unaudited, bits: int, dtype: str) -> Iterator[str]:
    """What loading as stored takes is in the table; this is the model in one dtype."""
    observed, expected = outcome.observed, outcome.expected
    if observed is not None and observed.parameters is not None:
        yield _product("stored", observed.parameters, bits, dtype)
    if expected is not None and (observed is None or expected.parameters != observed.parameters):
        yield _product(f"{outcome.target} alone", expected.parameters, bits, dtype)


def _product(what: str, parameters: int, bits: int, dtype: str) -> str:
    total = parameters * bits // 8
    return f"{what} in {dtype}: {parameters:,} x {bits / 8:g} = {total:,} bytes ({size(total)})"


def _cache(
    outcome: Report | Unaudited, bits: int, dtype: str, context: int | None, batch: int
) -> Iterator[str]:
    cache = outcome.kv_cache
    if cache is None:
        return
    yield (
        f"KV cache in {dtype}: {_layers(cache)} = {cache.per_token:,} elements, "
        f"{cache.per_token * bits // 8:,} bytes a token"
    )
    if cache.expanded_per_token != cache.per_token:
        more = cache.expanded_per_token * bits // 8
        yield f"  as transformers keeps it, keys and values written out: {more:,} bytes a token"
    if cache.cross:
        yield f"  and {cache.cross * bits // 8:,} bytes for each token of the encoder"
    if context is not None:
        total = batch * cache.elements(context) * bits // 8
        yield f"  {context:,} tokens in {batch} sequence(s): {total:,} bytes ({size(total)})"


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
