"""Read all numbers of local files: block by block, on all processors, in bounded memory.

Each thread has one block of 256 KiB; numpy's maxima and preads of several threads run in parallel.
Tensors are cut into runs, so that one large tensor keeps all threads busy. The tallies of runs are
added up in the order of the runs, so that the report does not depend on the threads.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

import numpy as np

from auditor.downloader.local_file import BLOCK, Extent, RegularFile
from auditor.downloader.parallel import results, threads
from auditor.downloader.waits import ReadingProgress, numbers_read
from auditor.machine import cpu_count
from auditor.reconciler.tensor_values import TensorValues
from auditor.tensors import Span
from auditor.values.number_formats import Bytes
from auditor.values.placing import Placed, open_files
from auditor.values.tally import (
    Counter,
    Moments,
    NumberTally,
    ScaleCounter,
    absolute_maximum,
    counter_of,
)

_RUN = 64 * 1024 * 1024  # bytes of a tensor that one thread reads
_MOST_THREADS = 16  # each has a block and, with statistics, memory of four more


class _Run(NamedTuple):
    """A span of a tensor's bytes in complete units; only the file's end may cut the last unit."""

    at: int  # the index of the tensor
    file: RegularFile
    counter: Counter | ScaleCounter
    span: Span


class NumbersReader:
    """A reader of tensors on several threads; each instance is used once."""

    def __init__(
        self,
        *,
        statistics: bool = False,
        threads: int | None = None,
        show: Callable[[str | None], None] = lambda _line: None,
    ) -> None:
        self._statistics = statistics
        self._threads = threads
        self._show = show
        self._over = Event()
        self._lock = Lock()
        self._done = 0  # bytes

    def read(self, placed: Sequence[Placed]) -> tuple[TensorValues, ...]:
        """Return statistics of each tensor, in the given order, without tensors of unknown dtypes.

        Raise SourceError if a file cannot be read, or has changed since its header was read.
        """
        with open_files(placed) as files:
            runs = list(_runs(placed, files, statistics=self._statistics))
            tallies = self._count(runs)
        tally_by_tensor: dict[int, NumberTally] = {}
        for run, tally in zip(runs, tallies, strict=True):
            tally_by_tensor.setdefault(run.at, NumberTally()).add(tally)
        return tuple(
            values_of(placed[at], tally, statistics=self._statistics)
            for at, tally in tally_by_tensor.items()
        )

    def _count(self, runs: list[_Run]) -> list[NumberTally]:
        tallies = [NumberTally() for _ in runs]
        size, progress = (
            sum(run.span.length for run in runs),
            ReadingProgress(self._show, numbers_read),
        )
        count = min(self._threads or min(_MOST_THREADS, cpu_count()), len(runs))
        if self._threads is None and size <= _RUN:  # small work needs no other thread
            count = 0
        numbered_runs = iter(enumerate(runs))
        with threads(count, self._over.set) as scheduler:
            counters = [
                scheduler.submit(self._count_runs, numbered_runs, tallies)
                for _ in range(max(1, count))
            ]
            try:
                results(counters, lambda: progress(self._done, size))
            finally:
                self._show(None)
                self._over.set()
                wait(counters, 1.0)  # the threads use the files; stop waiting if a disk hangs
        return tallies

    def _count_runs(
        self, numbered_runs: Iterator[tuple[int, _Run]], tallies: list[NumberTally]
    ) -> None:
        """Count runs until all are counted, each in pieces that fit one block of memory."""
        try:
            block = np.empty(BLOCK, np.uint8)
            while not self._over.is_set():
                with self._lock:
                    at, run = next(numbered_runs, (0, None))
                if run is None:
                    return
                for extent in _in_units(run):
                    self._extent(run, extent, block, tallies[at])
        except BaseException:
            self._over.set()
            raise

    def _extent(self, run: _Run, extent: Extent, block: Bytes, into: NumberTally) -> None:
        span, unit = extent.span, run.counter.unit
        if extent.hole:
            into.add(_zeros(run.counter, span.length // unit))
            self._done += span.length
            return
        step = BLOCK // unit * unit
        for start in range(span.start, span.stop, step):
            if self._over.is_set():
                return
            part = block[: min(step, span.stop - start)]
            run.file.read_into(part.data, start)
            run.counter.count(part, into)
            self._done += len(part)


def _runs(
    placed: Iterable[Placed], files: Mapping[Path, RegularFile], *, statistics: bool
) -> Iterator[_Run]:
    """Yield runs that cover each byte of the tensors once, up to the end of the file."""
    counters: dict[str | None, Counter | ScaleCounter | None] = {}
    for at, tensor in enumerate(placed):
        if tensor.dtype not in counters:
            counters[tensor.dtype] = counter_of(tensor.dtype, statistics=statistics)
        counter, file, span = counters[tensor.dtype], files[tensor.path], tensor.span
        if counter is None:
            continue
        units = (min(span.stop, file.size) - span.start) // counter.unit
        stop, step = span.start + units * counter.unit, _RUN // counter.unit * counter.unit
        for start in range(span.start, max(stop, span.start + 1), step):
            yield _Run(at, file, counter, Span(start, max(start, min(start + step, stop))))


def _in_units(run: _Run) -> Iterator[Extent]:
    """Yield the parts of a run that the file stores, and its holes, cut at the ends of units.

    A unit that is partly in a hole is read.
    """
    unit, first, at = run.counter.unit, run.span.start, run.span.start
    for extent in run.file.extents(run.span):
        if not extent.hole:
            continue
        start = first - (first - extent.span.start) // unit * unit  # rounded up
        stop = first + (extent.span.stop - first) // unit * unit
        if stop <= start:
            continue
        if start > at:
            yield Extent(Span(at, start), hole=False)
        yield Extent(Span(start, stop), hole=True)
        at = stop
    if at < run.span.stop:
        yield Extent(Span(at, run.span.stop), hole=False)


def _zeros(counter: Counter | ScaleCounter, units: int) -> NumberTally:
    """Return the tally of `units` units of zero bytes: the tally of one unit, multiplied."""
    tally = NumberTally()
    counter.count(np.zeros(counter.unit, np.uint8), tally)
    moments = Moments(
        count=tally.moments.count * units,
        mean=tally.moments.mean,
        squares=tally.moments.squares * units,
        minimum=tally.moments.minimum,
        maximum=tally.moments.maximum,
    )
    tally.read, tally.nan, tally.inf = tally.read * units, tally.nan * units, tally.inf * units
    tally.zeros, tally.moments = tally.zeros * units, moments
    return tally


def values_of(placed: Placed, tally: NumberTally, *, statistics: bool) -> TensorValues:
    """Convert a tally into the statistics that the report contains."""
    tensor, moments, numbers = placed.tensor, tally.moments, number_count(placed)
    dtype = tensor.dtype or ""
    has_moments = statistics and moments.count > 0
    return TensorValues(
        name=tensor.name,
        file=tensor.file,
        dtype=dtype,
        numbers=numbers,
        read=tally.read,
        nan=tally.nan,
        inf=tally.inf,
        nonzero=tally.nonzero,
        absmax=absolute_maximum(placed.dtype or "", tally),
        fits_bf16=not tally.low if dtype == "F32" and tally.nonzero else None,
        zeros=tally.zeros if statistics else None,
        minimum=moments.minimum if has_moments else None,
        maximum=moments.maximum if has_moments else None,
        mean=_finite(moments.mean) if has_moments else None,
        std=_finite(moments.std) if has_moments else None,
        sampled=tally.read < numbers,
    )


def _finite(number: float | None) -> float | None:
    """Return the number, or None if it is not finite, because a float64 sum overflowed."""
    return number if number is not None and math.isfinite(number) else None


def number_count(placed: Placed) -> int:
    """Return the count of numbers in a tensor, as TensorValues defines it."""
    counter = counter_of(placed.dtype, statistics=False)
    return placed.span.length // counter.unit * counter.numbers if counter else 0
