"""Read the numbers of tensors: block by block, on all processors, in bounded memory.

Each thread has one block of 256 KiB; numpy's maxima and preads of several threads run in parallel.
Tensors are cut into runs, so that one large tensor keeps all threads busy. The tallies of runs are
added up in the order of the runs, so that the report does not depend on the threads.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from threading import Event, Lock
from typing import NamedTuple

import numpy as np

from auditor.downloader.local_file import BLOCK
from auditor.downloader.parallel import results, threads
from auditor.downloader.waits import ReadingProgress, numbers_read
from auditor.machine import cpu_count
from auditor.reconciler.tensor_values import TensorValues
from auditor.tensors import Span
from auditor.values.number_formats import Bytes
from auditor.values.tally import Counter, NumberTally, absolute_maximum, counter_of
from auditor.values.tensor_bytes import Placed, TensorBytes, readable_units

_RUN = 64 * 1024 * 1024  # bytes of a tensor that one thread reads
_MOST_THREADS = 16  # each has a block and, with statistics, memory of four more


class _Run(NamedTuple):
    """A span of a tensor's bytes in complete units, and its tally."""

    tensor: Placed
    counter: Counter
    span: Span
    tally: NumberTally


class NumbersReader:
    """A reader of tensors on several threads; each instance is used once."""

    def __init__(
        self,
        data: TensorBytes,
        *,
        statistics: bool = False,
        threads: int | None = None,
        show: Callable[[str | None], None] = lambda _line: None,
    ) -> None:
        self._data = data
        self._statistics = statistics
        self._threads = threads
        self._show = show
        self._over = Event()
        self._lock = Lock()
        self._done = 0  # bytes

    def read(self, placed: Sequence[Placed]) -> tuple[TensorValues, ...]:
        """Return statistics of each tensor of a known dtype that can be read, in the given order.

        Raise SourceError if a file cannot be read, or has changed since its header was read.
        """
        runs_by_tensor = [list(self._runs(tensor)) for tensor in placed]
        self._count([run for runs in runs_by_tensor for run in runs])
        values = []
        for tensor, runs in zip(placed, runs_by_tensor, strict=True):
            if runs:
                tally = NumberTally()
                for run in runs:
                    tally.add(run.tally)
                values.append(values_of(tensor, tally, statistics=self._statistics))
        return tuple(values)

    def _runs(self, tensor: Placed) -> Iterator[_Run]:
        """Yield runs that cover each complete unit of the tensor that can be read once."""
        counter = counter_of(tensor.dtype, statistics=self._statistics)
        if counter is None:
            return
        if not tensor.span.length and self._data.runs(tensor):
            yield _Run(tensor, counter, Span(0, 0), NumberTally())
        step = _RUN // counter.unit * counter.unit
        for span in readable_units(self._data, tensor, counter.unit):
            for start in range(span.start, span.stop, step):
                part = Span(start, min(start + step, span.stop))
                yield _Run(tensor, counter, part, NumberTally())

    def _count(self, runs: list[_Run]) -> None:
        size = sum(run.span.length for run in runs)
        progress = ReadingProgress(self._show, numbers_read)
        count = min(self._threads or min(_MOST_THREADS, cpu_count()), len(runs))
        if self._threads is None and size <= _RUN:  # small work needs no other thread
            count = 0
        left = iter(runs)
        with threads(count, self._over.set) as scheduler:
            counters = [scheduler.submit(self._count_runs, left) for _ in range(max(1, count))]
            try:
                results(counters, lambda: progress(self._done, size))
            finally:
                self._show(None)
                self._over.set()
                wait(counters, 1.0)  # the threads use the files; stop waiting if a disk hangs

    def _count_runs(self, left: Iterator[_Run]) -> None:
        """Count runs until all are counted, each in pieces that fit one block of memory."""
        try:
            block = np.empty(BLOCK, np.uint8)
            while not self._over.is_set():
                with self._lock:
                    run = next(left, None)
                if run is None:
                    return
                self._count_run(run, block)
        except BaseException:
            self._over.set()
            raise

    def _count_run(self, run: _Run, block: Bytes) -> None:
        step = BLOCK // run.counter.unit * run.counter.unit
        for start in range(run.span.start, run.span.stop, step):
            if self._over.is_set():
                return
            part = block[: min(step, run.span.stop - start)]
            self._data.fill(run.tensor, start, part.data)
            run.counter.count(part, run.tally)
            self._done += len(part)


def values_of(placed: Placed, tally: NumberTally, *, statistics: bool) -> TensorValues:
    """Convert a tally into the statistics that the report contains."""
    tensor, moments = placed.tensor, tally.moments
    counter = counter_of(placed.dtype, statistics=False)
    numbers = placed.span.length // counter.unit * counter.numbers if counter else 0
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
