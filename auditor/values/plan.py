"""Plan the spans of a checkpoint's files that a small sample reads.

A slice is a run of one tensor's bytes; some slices are more valuable than others. Norms and biases
are small, and show whether the body of a model was trained. A head and an adapter's factors show
whether they were trained. The last rows of the embedding belong to added tokens. Two copies of a
tied tensor are compared at the same offset. For all other tensors the first, the middle and the
last layer stand for the rest.

A request costs more than its bytes: a round trip, and one of the requests that a token may make. So
a window of a file is read with several such slices: the end of one matrix, the norm behind it and
the beginning of the next matrix are one request. The most valuable window is chosen first, then
the next. A slice of a kind (names that differ only in numbers) that is already in a window counts
for less.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.tensors import Span, natural_key
from auditor.values.name_patterns import EMBEDDING, HEAD, NEUTRAL_FACTOR, NORM, NUMBER
from auditor.values.tensor_bytes import Placed, PlannedSpan

SMALL = 16 * 1024  # bytes of a tensor that is read whole: norms and biases
_START = 16 * 1024  # bytes of the beginning of a matrix
_END = 8 * 1024  # of its end, which lies next to the beginning of the next matrix
_HEAD_START = 48 * 1024  # 24,576 numbers of BF16 distinguish deviations that differ by 2 %
_LEAST_ROWS = 4  # the least number of the embedding's last rows to read

_MOST_PAIRS = 2

# The most slices to choose from: a model has about a hundred, an untrusted file may have more.
_MOST_SLICES = 2000

_KNOWN_LAYER = 0.75  # the value of a slice from a layer that is already in a window


class Slice(NamedTuple):
    """A run of a tensor's bytes that is worth reading."""

    path: Path
    span: Span  # span in the file, within one tensor
    kind: str  # the tensor's name with # for numbers; a second slice of a kind is worth half
    worth: float
    wanted: bool = False  # chosen before all others: useless without its counterpart
    layer: str = ""  # the numbers in the tensor's name


class SampleBudget(Struct, frozen=True, kw_only=True):
    """The limits of a sample."""

    requests: int
    bytes: int


DEFAULT = SampleBudget(requests=8, bytes=600_000)

_UNITS = {"": 0, "b": 1, "kb": 1000, "kib": 1024, "mb": 10**6, "mib": 2**20, "gb": 10**9}


def parse_budget(text: str | None) -> SampleBudget:
    """Parse `16`, `2MB` or `16,2MB`: requests, bytes, or both; raise UsageError for other texts."""
    requests, size = DEFAULT.requests, DEFAULT.bytes
    for part in text.split(",") if text is not None else ():
        number = part.strip().rstrip("kKmMgGiIbB").strip()
        unit = part.strip()[len(number) :].strip().lower()
        if not (number.isascii() and number.isdecimal() and len(number) < 10 and unit in _UNITS):  # noqa: PLR2004
            raise UsageError(
                f"--values-budget is {quoted(text or '')}, expected one like 16, 2MB or 16,2MB"
            )
        if unit:
            size = int(number) * _UNITS[unit]
        else:
            requests = int(number)
    return SampleBudget(requests=requests, bytes=size)


def plan_spans(
    placed: Sequence[Placed], slices: Iterable[Slice], budget: SampleBudget
) -> tuple[PlannedSpan, ...]:
    """Return the spans to read, sorted by file and offset.

    The spans are within the budget, do not touch each other, and lie between the first and the last
    byte of a file's tensors. If all tensors fit into the budget, each file is one span.
    """
    data = _extents(placed)
    if not data or budget.requests < 1 or budget.bytes < 1:
        return ()
    if len(data) <= budget.requests and sum(one.length for one in data.values()) <= budget.bytes:
        return tuple(PlannedSpan(path, data[path]) for path in sorted(data))
    windows = _windows(slices, budget)
    left = budget.bytes - sum(one.span.length for one in windows)
    return merged_spans(_grown(merged_spans(windows), data, left))


def _extents(placed: Iterable[Placed]) -> dict[Path, Span]:
    """Return the span from the first to the last tensor byte, by file."""
    span_by_file: dict[Path, Span] = {}
    for tensor in placed:
        if tensor.span.length > 0:
            span = span_by_file.get(tensor.path, tensor.span)
            start, stop = min(span.start, tensor.span.start), max(span.stop, tensor.span.stop)
            span_by_file[tensor.path] = Span(start, stop)
    return span_by_file


def _windows(slices: Iterable[Slice], budget: SampleBudget) -> list[PlannedSpan]:
    """Return the most valuable windows, at most one for each request."""
    ranked = sorted(slices, key=lambda one: (not one.wanted, -one.worth, one.path, one.span))
    left = sorted(ranked[:_MOST_SLICES], key=lambda one: (one.path, one.span))
    seen: Counter[str] = Counter()
    windows: list[PlannedSpan] = []
    most = budget.bytes
    for requests in range(budget.requests, 0, -1):
        best = _best(left, seen, most // requests)
        if not best:
            break
        window = Span(best[0].span.start, max(one.span.stop for one in best))
        windows.append(PlannedSpan(best[0].path, window))
        most -= window.length
        seen.update(one.kind for one in best)
        seen.update({one.layer for one in best})
        taken = set(best)
        left = [one for one in left if one not in taken]
    return windows


def _best(slices: list[Slice], seen: Counter[str], most: int) -> list[Slice]:
    """Return the neighbouring slices, within `most` bytes, that are worth most together.

    If any slice is `wanted`, one of the returned slices is.
    """
    must_be_wanted = any(one.wanted for one in slices)
    best: list[Slice] = []
    highest = 0.0
    for _, group in groupby(slices, key=lambda one: one.path):
        slices_of_file = list(group)
        for at, first in enumerate(slices_of_file):
            window = _within(slices_of_file[at:], first.span.start + most)
            if must_be_wanted and not any(one.wanted for one in window):
                continue
            worth = _worth(window, seen)
            if worth > highest:
                best, highest = window, worth
    return best


def _within(slices: Iterable[Slice], stop: int) -> list[Slice]:
    begun = takewhile(lambda one: one.span.start < stop, slices)
    return [one for one in begun if one.span.stop <= stop]


def _worth(window: Iterable[Slice], seen: Counter[str]) -> float:
    counts: Counter[str] = Counter()
    worth = 0.0
    for piece in window:
        share = _KNOWN_LAYER if piece.layer and seen[piece.layer] else 1.0
        worth += share * piece.worth / (1 + seen[piece.kind] + counts[piece.kind])
        counts[piece.kind] += 1
    return worth


def merged_spans(spans: Iterable[PlannedSpan]) -> tuple[PlannedSpan, ...]:
    """Sort spans, and merge spans that overlap or touch."""
    merged: list[PlannedSpan] = []
    for path, span in sorted(spans):
        last = merged[-1] if merged else None
        if last and last.path == path and span.start <= last.span.stop:
            merged[-1] = PlannedSpan(path, Span(last.span.start, max(last.span.stop, span.stop)))
        else:
            merged.append(PlannedSpan(path, span))
    return tuple(merged)


def _grown(
    spans: Sequence[PlannedSpan], data: dict[Path, Span], left: int
) -> Iterator[PlannedSpan]:
    """Share `left` bytes evenly among the spans: extend forwards, or backwards at a file's end."""
    for at, (path, span) in enumerate(spans):
        share = left // (len(spans) - at)
        forth = min(share, data[path].stop - span.stop)
        back = min(share - forth, span.start - data[path].start)
        left -= forth + back
        yield PlannedSpan(path, Span(span.start - back, span.stop + forth))


# --- slices --------------------------------------------------------------------------------------


class Interest(NamedTuple):
    """The tensors whose numbers are worth reading, according to the audit of the headers."""

    pairs: tuple[tuple[str, str], ...] = ()  # a copy, and what it is tied to
    # Added biases: only their numbers show whether they matter.
    doubted: frozenset[str] = frozenset()
    tokens: int | None = None  # the number of embedding rows with a token; None: unknown


def valuable_slices(placed: Sequence[Placed], interest: Interest) -> Iterator[Slice]:
    """Yield the slices that are worth reading; tied tensors have slices at equal offsets.

    The slices do not depend on the order of `placed`.
    """
    members_by_kind: dict[str, list[Placed]] = {}
    for tensor in placed:
        if tensor.span.length > 0:
            kind = NUMBER.sub("#", tensor.tensor.name)
            members_by_kind.setdefault(kind, []).append(tensor)
    for kind, members in sorted(members_by_kind.items()):
        members.sort(key=lambda one: (natural_key(one.tensor.name), one.path, one.span))
        doubted = (at for at, one in enumerate(members) if one.tensor.name in interest.doubted)
        for at in sorted({0, len(members) // 2, len(members) - 1, *doubted}):
            yield from _of_tensor(members[at], kind, interest)
    yield from _pairs(placed, interest.pairs)


def _of_tensor(placed: Placed, kind: str, interest: Interest) -> Iterator[Slice]:
    name, size = placed.tensor.name, placed.span.length
    if EMBEDDING.search(name):
        worth = 1.0 if interest.tokens is None else 6.0  # without tokens no row is untrained
        yield _slice(placed, _last_rows(placed, interest.tokens), f"{kind} rows", worth)
    worth = _worth_of_tensor(name, interest.doubted)
    if size <= SMALL:
        yield _slice(placed, Span(0, size), kind, worth)
        return
    start = min(size, _HEAD_START if HEAD.search(name) else _START)
    yield _slice(placed, Span(0, start), kind, worth)
    if size - _END >= start:
        yield _slice(placed, Span(size - _END, size), f"{kind} end", 0.3)


def _worth_of_tensor(name: str, doubted: Container[str]) -> float:
    if name in doubted or NEUTRAL_FACTOR.search(name):
        return 3.0
    if HEAD.search(name):
        return 4.0
    if NORM.search(name):
        return 2.0
    return 1.5 if name.endswith(".bias") else 1.0


def _last_rows(placed: Placed, tokens: int | None) -> Span:
    """Return the span of the last embedding rows with a token: 16 KiB, but at least four rows."""
    rows = (placed.tensor.shape or (1,))[0] or 1
    size = max(1, placed.span.length // rows)  # bytes of a row
    last = min(rows, tokens or rows)
    count = max(_LEAST_ROWS, _START // size)
    return Span(max(0, last - count) * size, last * size)


def _pairs(placed: Iterable[Placed], pairs: Sequence[tuple[str, str]]) -> Iterator[Slice]:
    names = {name for pair in pairs for name in pair}
    tensors = [one for one in placed if one.tensor.name in names and one.span.length > 0]
    tensors.sort(key=lambda one: (one.path, one.span), reverse=True)
    by_name = {one.tensor.name: one for one in tensors}  # the first file that has the name
    stored_pairs = [pair for pair in pairs if set(pair) <= by_name.keys()]
    for copy, of in stored_pairs[:_MOST_PAIRS]:
        if copy != of:
            span = Span(0, min(_START, by_name[copy].span.length, by_name[of].span.length))
            for name in (copy, of):
                yield _slice(by_name[name], span, f"{copy} tied", 4.0)._replace(wanted=True)


def _slice(placed: Placed, span: Span, kind: str, worth: float) -> Slice:
    start = placed.span.start + span.start
    layer = ".".join(NUMBER.findall(placed.tensor.name))
    return Slice(placed.path, Span(start, start + span.length), kind, worth, layer=layer)
