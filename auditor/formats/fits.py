"""Whether a model fits a graphics card: one number, and the cards of data/cards.csv that hold it.

A card is said to hold a model only if a tenth of its memory stays free, for activations and the
program: vLLM, too, took 0.9 by default (gpu_memory_utilization). Drivers show a card of 24 GB with
23 to 24 GiB, and cards with error correction give up a sixteenth: between 90 and 100 % is `tight`.
"""

import re
from collections.abc import Iterator, Sequence
from csv import DictReader
from importlib.resources import files as resources
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.errors import UsageError
from auditor.formats.memory_needs import (
    COMMON_DTYPES,
    Use,
    bits_of,
    in_bytes,
    loading_needs,
)
from auditor.formats.text import StyledLine, counted, size, wrapped
from auditor.messages import quoted
from auditor.report import Outcome, Report, Unaudited
from auditor.tensors import DTYPE_BITS

_CONTEXT = 8192  # tokens of the cache, unless --context gives another number
_POSITIONS = ("max_position_embeddings", "n_positions")
_DEFAULT = "BF16"
_HALF = 16  # bits
_GIB = 2**30
_FREE = 0.1  # least share of a card that stays free
_SIZE = re.compile(r"(\d{1,4}(?:\.\d{1,2})?)\s*(?:GB|GiB|G)", re.IGNORECASE)
_MAKERS = re.compile(r"nvidia|geforce|amd|radeon|instinct|tesla|[^a-z0-9]")


class Card(NamedTuple):
    """A graphics card."""

    name: str  # "": known by its size alone
    gigabytes: float

    @property
    def label(self) -> str:
        given = f"{self.gigabytes:g} GB"
        return self.name if given.replace(" ", "") in self.name else f"{self.name} {given}".strip()

    def holds(self, count: int) -> bool | None:
        """Return whether the card holds so many bytes; None if too little would stay free."""
        room = self.gigabytes * _GIB
        return False if count > room else True if count <= (1 - _FREE) * room else None


class Fit(NamedTuple):
    """The bytes of a model that is used, and what they are for."""

    weights: int
    dtype: str
    is_as_stored: bool
    base: int = 0  # bytes of an adapter's base
    cache: int = 0
    context: int | None = None  # tokens of the cache; None: no cache is counted
    sequences: int = 1
    unknown_cache: str | None = None
    largest: tuple[str, int] | None = None  # a pipeline's largest component and its bytes

    @property
    def total(self) -> int:
        return self.weights + self.base + self.cache


def cards() -> tuple[Card, ...]:
    """Return the cards of the table, the smallest first."""
    text = (resources("auditor") / "data" / "cards.csv").read_text(encoding="ascii")
    rows = DictReader(text.splitlines())
    return tuple(Card(row["name"], float(row["gigabytes"])) for row in rows)


def card_of(given: str) -> Card:
    """Return the card with a name or a size; raise UsageError if there is none, or several."""
    if match := _SIZE.fullmatch(given.strip()):
        return Card("", float(match[1]))
    wanted = _MAKERS.sub("", given.lower())
    by_name = {_MAKERS.sub("", card.name.lower()): card for card in cards()}
    found = [card for name, card in by_name.items() if wanted and wanted in name]
    if wanted in by_name or len(found) == 1:
        return by_name.get(wanted) or found[0]
    names = ", ".join(card.name for card in found or by_name.values())
    what = "several cards" if found else "not a card of the table"
    raise UsageError(
        f"--gpu {quoted(given)} is {what}; give a size such as 24GB, or one of {names}"
    )


def fit_of(outcome: Report | Unaudited, use: Use) -> Fit | None:
    """Return what a model takes when it is used; None if that is not known.

    Without `--dtype` the weights count as they are stored, and tensors that are not stored in the
    dtype of most bytes.
    """
    if outcome.parts:
        fits = [(part.component or "", fit_of(part, use)) for part in outcome.parts]
        known = [(name, fit) for name, fit in fits if fit is not None]
        if len(known) < len(fits):
            return None
        name, largest = max(known, key=lambda pair: pair[1].weights)
        total = sum(fit.weights for _, fit in known)
        return largest._replace(
            weights=total,
            cache=0,
            context=None,
            unknown_cache=None,
            largest=(name, largest.weights),
        )
    is_stored = bool(outcome.observed and outcome.observed.weights and not outcome.unread)
    expected = outcome.expected
    if expected is None and not (is_stored and outcome.component):  # it may be an adapter
        return None
    weights, dtype = _weights(outcome, use, is_stored=is_stored)
    bits = DTYPE_BITS.get(dtype, 0)
    width = dtype if bits >= _HALF and not dtype.startswith(("I", "U", "C")) else _DEFAULT
    is_as_stored = is_stored and use.dtypes == COMMON_DTYPES
    in_base = _DEFAULT if use.dtypes == COMMON_DTYPES else use.dtypes[0]  # its files are not read
    base = in_bytes(expected.base or 0, bits_of(in_base)) if expected else 0
    fit = Fit(weights, dtype, is_as_stored, base, unknown_cache=outcome.unknown_cache)
    if outcome.kv_cache is None or expected is None:
        return fit
    positions = [one.value for one in expected.legend if one.key in _POSITIONS]
    context = use.context or min(_CONTEXT, *positions, _CONTEXT)
    sequences = use.concurrency or use.batch
    loaded = replace(use, dtypes=(width,), context=context, batch=sequences)
    need = loading_needs(outcome, loaded)[0]
    paged = need.paged_cache if use.concurrency else None
    cache = (need.cache if paged is None else paged) or 0
    return fit._replace(cache=cache, context=context, sequences=sequences)


def _weights(outcome: Outcome, use: Use, *, is_stored: bool) -> tuple[int, str]:
    """Return the bytes of the weights and their dtype, which has most of the stored bytes."""
    observed, expected = outcome.observed, outcome.expected
    stored = observed.parameters or 0 if observed else 0
    parameters = expected.parameters if expected else stored
    if observed is None or not is_stored or use.dtypes != COMMON_DTYPES:
        dtype = _DEFAULT if use.dtypes == COMMON_DTYPES else use.dtypes[0]
        return in_bytes(parameters, bits_of(dtype)), dtype
    most = max(observed.weights, key=lambda row: row.bytes)
    missing = in_bytes(max(0, parameters - stored), DTYPE_BITS.get(most.dtype, _HALF))
    return sum(row.bytes for row in observed.weights) + missing, most.dtype


# --- for people ---------------------------------------------------------------------------------


def lines(outcome: Report | Unaudited, use: Use, width: int) -> Iterator[StyledLine]:
    """Yield the number and the cards, for the top of `audit memory`."""
    fit = fit_of(outcome, use)
    if fit is None:
        return
    yield from wrapped((("needs ", "bold"), (size(fit.total), "bold"), (_terms(fit), "")), width)
    if use.gpu is not None:
        yield from wrapped(_on_one(fit, card_of(use.gpu)), width)
        return
    for sentence in _on_each(fit, cards()):
        yield from wrapped(sentence, width)


def _terms(fit: Fit) -> str:
    """Return `: weights 14.96 GiB as stored (BF16), cache 1.00 GiB for 8,192 tokens`."""
    how = f"as stored ({fit.dtype})" if fit.is_as_stored else f"in {fit.dtype}"
    terms = [f"weights {size(fit.weights)} {how}"]
    if fit.base:
        terms = [f"the base {size(fit.base)}, not read", f"the adapter {size(fit.weights)} {how}"]
        terms.append("no cache is counted")
    if fit.context is not None:
        times = f" x {counted(fit.sequences, 'sequence')}" if fit.sequences > 1 else ""
        terms.append(f"cache {size(fit.cache)} for {fit.context:,} tokens{times}")
    elif fit.unknown_cache:
        terms.append(f"the cache is {fit.unknown_cache}")
    if fit.largest:
        name, count = fit.largest
        terms.append(f"all components; the largest, {quoted(name)}, {size(count)} alone")
    return f": {', '.join(terms)}"


def _on_one(fit: Fit, card: Card) -> str:
    free = card.gigabytes * _GIB - fit.total
    held = card.holds(fit.total)
    if held is False:
        return f"does not fit {card.label}: {size(int(-free))} too much"
    if held is None:
        return f"tight on {card.label}: only {size(int(free))} would stay free"
    more = ""
    if fit.context is not None and fit.cache:
        room = (1 - _FREE) * card.gigabytes * _GIB - fit.weights - fit.base
        count = int(room * fit.sequences // fit.cache)
        more = f"; there is room for {counted(count, 'sequence')} of {fit.context:,} tokens"
    return f"fits {card.label}: {size(int(free))} stay free{more}"


def _on_each(fit: Fit, table: Sequence[Card]) -> Iterator[str]:
    """Yield the smallest cards that hold the model, the tight ones and the largest that do not."""
    by_size = [(gb, [*group]) for gb, group in groupby(table, lambda card: card.gigabytes)]
    answers: dict[bool | None, list[str]] = {True: [], None: [], False: []}
    for gigabytes, group in by_size:
        names = ", ".join(card.name for card in group)
        answers[group[0].holds(fit.total)].append(f"{gigabytes:g} GB ({names})")
    if fitting := answers[True]:
        yield f"fits: {fitting[0]}{' and more' if len(fitting) > 1 else ''}"
    else:
        yield f"fits: none; the largest card of the table has {by_size[-1][0]:g} GB"
    if tight := answers[None]:
        yield f"tight: {', '.join(tight)}; less than a tenth would stay free"
    if failing := answers[False]:
        yield f"not: {failing[-1]}{' and less' if len(failing) > 1 else ''}"


# --- as JSON ------------------------------------------------------------------------------------


def as_object(outcome: Report | Unaudited, use: Use) -> dict[str, Any] | None:
    """Return the bytes and, for each card, whether it holds them; null: too little stays free."""
    fit = fit_of(outcome, use)
    if fit is None:
        return None
    chosen = cards() if use.gpu is None else (card_of(use.gpu),)
    held = [{"name": one.label, "holds": one.holds(fit.total)} for one in chosen]
    return {"total": fit.total, **fit._asdict(), "cards": held}
