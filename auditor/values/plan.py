"""Which spans of a checkpoint's files are read where a few kilobytes are all that may be. Pure.

A request costs more than its bytes: a round trip, and one of the requests that a token may make. So
what is chosen are windows of a file in which several slices lie that tell something: the end of one
matrix, the norm behind it and the beginning of the next are one request. The window that tells most
is taken first, then the next; slices of a kind that was seen already count for less.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from auditor.tensors import Span
from auditor.values.placing import Placed

# Slices that are weighed: a model has about a hundred, a file of strangers' names may have more.
_MOST_SLICES = 2000


_SEEN_LAYER = 0.75


class Slice(NamedTuple):
    """A run of a tensor's bytes that is worth reading."""

    path: Path
    span: Span  # of the file, within one tensor
    kind: str  # what it tells of; of the same kind a second one tells half as much
    worth: float
    wanted: bool = False  # before all others: without its like it tells nothing
    layer: str = ""  # the numbers in its name; of a layer that was seen it tells a little less


class PlannedSpan(NamedTuple):
    """One read."""

    path: Path
    span: Span


class SampleBudget(Struct, frozen=True, kw_only=True):
    """The limits of a sample."""

    requests: int
    bytes: int


def plan_spans(
    placed: Sequence[Placed], slices: Iterable[Slice], budget: SampleBudget
) -> tuple[PlannedSpan, ...]:
    """The spans to read, by file and place.

    They are within the budget; none touches another of its file, and each lies between the first
    and the last byte of the file's tensors. What all fits is read whole.
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
    found: dict[Path, Span] = {}
    for one in placed:
        if one.span.length > 0:
            known = found.get(one.path, one.span)
            start, stop = min(known.start, one.span.start), max(known.stop, one.span.stop)
            found[one.path] = Span(start, stop)
    return found


def _windows(slices: Iterable[Slice], budget: SampleBudget) -> list[PlannedSpan]:
    """The windows that tell most, one for each request at the most."""
    ranked = sorted(slices, key=lambda one: (not one.wanted, -one.worth, one.path, one.span))
    left = sorted(ranked[:_MOST_SLICES], key=lambda one: (one.path, one.span))
    seen: Counter[str] = Counter()
    found: list[PlannedSpan] = []
    most = budget.bytes
    for requests in range(budget.requests, 0, -1):
        best = _best(left, seen, most // requests)
        if not best:
            break
        window = Span(best[0].span.start, max(one.span.stop for one in best))
        found.append(PlannedSpan(best[0].path, window))
        most -= window.length
        seen.update(one.kind for one in best)
        seen.update({one.layer for one in best})
        taken = set(best)
        left = [one for one in left if one not in taken]
    return found


def _best(slices: list[Slice], seen: Counter[str], most: int) -> list[Slice]:
    """Neighbours within so many bytes that tell most; with a wanted one, if any is left."""
    must = any(one.wanted for one in slices)
    best: list[Slice] = []
    highest = 0.0
    for _, each in groupby(slices, key=lambda one: one.path):
        of_file = list(each)
        for at, first in enumerate(of_file):
            window = _within(of_file[at:], first.span.start + most)
            if must and not any(one.wanted for one in window):
                continue
            worth = _worth(window, seen)
            if worth > highest:
                best, highest = window, worth
    return best


def _within(slices: Iterable[Slice], stop: int) -> list[Slice]:
    found = []
    for one in slices:
        if one.span.start >= stop:
            break
        if one.span.stop <= stop:
            found.append(one)
    return found


def _worth(window: Iterable[Slice], seen: Counter[str]) -> float:
    counts: Counter[str] = Counter()
    worth = 0.0
    for one in window:
        known = _SEEN_LAYER if one.layer and seen[one.layer] else 1.0
        worth += known * one.worth / (1 + seen[one.kind] + counts[one.kind])
        counts[one.kind] += 1
    return worth


def merged_spans(spans: Iterable[PlannedSpan]) -> tuple[PlannedSpan, ...]:
    """Sort spans, and merge spans that overlap or touch."""
    found: list[PlannedSpan] = []
    for path, span in sorted(spans):
        last = found[-1] if found else None
        if last and last.path == path and span.start <= last.span.stop:
            found[-1] = PlannedSpan(path, Span(last.span.start, max(last.span.stop, span.stop)))
        else:
            found.append(PlannedSpan(path, span))
    return tuple(found)


def _grown(
    spans: Sequence[PlannedSpan], data: dict[Path, Span], left: int
) -> Iterator[PlannedSpan]:
    """Spread the `left` bytes evenly over all spans: forwards, or back at the end of a file."""
    for at, (path, span) in enumerate(spans):
        share = left // (len(spans) - at)
        forth = min(share, data[path].stop - span.stop)
        back = min(share - forth, span.start - data[path].start)
        left -= forth + back
        yield PlannedSpan(path, Span(span.start - back, span.stop + forth))
