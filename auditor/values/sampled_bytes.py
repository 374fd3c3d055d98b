"""Spans of files that were fetched, as rules look at them, and what they hold. Pure, numpy."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from auditor.downloader.local_blocks import BLOCK
from auditor.reconciler.tensor_values import TensorValues
from auditor.tensors import Span
from auditor.values.local_numbers import values_of
from auditor.values.number_formats import Bytes
from auditor.values.placing import Placed
from auditor.values.plan import PlannedSpan
from auditor.values.tally import NumberTally, counter_of


class SampledBytes:
    """Bytes of spans that were fetched; none touches another of its file."""

    def __init__(self, parts: Iterable[tuple[PlannedSpan, bytes]]) -> None:
        self._parts: dict[Path, list[tuple[Span, Bytes]]] = {}
        for (path, span), data in parts:
            self._parts.setdefault(path, []).append((span, np.frombuffer(data, np.uint8)))

    def read(self, tensor: Placed, span: Span) -> Bytes | None:
        start, stop = tensor.span.start + span.start, tensor.span.start + span.stop
        for part, data in self._parts.get(tensor.path, ()):
            if part.start <= start and stop <= part.stop:
                return data[start - part.start : stop - part.start].copy()
        return None

    def runs(self, tensor: Placed) -> tuple[Span, ...]:
        return tuple(self._runs(tensor))

    def _runs(self, tensor: Placed) -> Iterator[Span]:
        first = tensor.span.start
        for part, _ in self._parts.get(tensor.path, ()):
            start, stop = max(part.start, first), min(part.stop, tensor.span.stop)
            if start < stop:
                yield Span(start - first, stop - first)


def sampled_values(
    placed: Sequence[Placed], data: SampledBytes, *, statistics: bool
) -> tuple[TensorValues, ...]:
    """What is known of each tensor of which some numbers were fetched, in the order given."""
    return tuple(
        found for one in placed if (found := _values(one, data, statistics=statistics)) is not None
    )


def _values(one: Placed, data: SampledBytes, *, statistics: bool) -> TensorValues | None:
    counter = counter_of(one.dtype, statistics=statistics)
    if counter is None:
        return None
    tally, unit = NumberTally(), counter.unit
    step = BLOCK // unit * unit
    for run in data.runs(one):
        first, last = -(-run.start // unit) * unit, run.stop // unit * unit
        for start in range(first, last, step):
            block = data.read(one, Span(start, min(start + step, last)))
            if block is not None:
                counter.count(block, tally)
    return values_of(one, tally, statistics=statistics) if tally.read else None
