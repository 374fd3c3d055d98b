"""The input of the rules about numbers: an outcome, statistics of each tensor, and its bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot
from auditor.downloader.local_file import BLOCK, RegularFile
from auditor.findings import Finding, QuantizationData, StoredBuffer, Unexpected
from auditor.reconciler.tensor_values import TensorValues
from auditor.report import Report, Unaudited
from auditor.tensors import Span, StoredTensor
from auditor.values.local_numbers import values_of
from auditor.values.number_formats import FORMATS, Bytes
from auditor.values.placing import Placed
from auditor.values.plan import PlannedSpan
from auditor.values.profile import Profile, profile_of, spread_pieces
from auditor.values.tally import NumberTally, counter_of

SAMPLE = 16 * 1024  # bytes of a tensor that rules read if a sample suffices


class TensorBytes(Protocol):
    """An interface to the bytes of tensors that were read."""

    def read(self, tensor: Placed, span: Span) -> Bytes | None:
        """Return the bytes in a span relative to the tensor's start; None if some were not read."""

    def runs(self, tensor: Placed) -> tuple[Span, ...]:
        """Return the spans of a tensor that were read, relative to the tensor's start."""


class LocalBytes:
    """Access to the bytes of open local files."""

    def __init__(self, files: Mapping[Path, RegularFile]) -> None:
        self._files = files

    def read(self, tensor: Placed, span: Span) -> Bytes | None:
        data = np.empty(span.length, np.uint8)
        self._files[tensor.path].read_into(data.data, tensor.span.start + span.start)
        return data

    def runs(self, tensor: Placed) -> tuple[Span, ...]:
        return (Span(0, tensor.span.length),)


class Beginning(NamedTuple):
    """The first bytes of a tensor: their digest, and whether two bytes differ."""

    digest: bytes
    varied: bool


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    """The input of a rule; its methods return None for numbers that were not read."""

    outcome: Report | Unaudited
    snapshot: Snapshot
    placed: Mapping[str, Placed]  # by name; the first shard's tensor if two have the name
    values: Mapping[str, TensorValues]  # likewise; only tensors that were read
    bytes: TensorBytes
    sampled: bool = False  # not all bytes were read
    copies: Mapping[str, tuple[Placed, ...]] = {}  # by name, of tensors in several files

    @property
    def were_read(self) -> str:
        """The verb in messages about the numbers: "were sampled", or "were read" if all were."""
        return "were sampled" if self.sampled else "were read"

    @property
    def config(self) -> Mapping[str, Any]:
        """The config's values; {} if the config cannot be read, which another rule reports."""
        return self.snapshot.config.values if self.snapshot.config else {}

    @property
    def configs(self) -> tuple[Mapping[str, Any], ...]:
        """The config, and the configs nested in it."""
        nested = (one for one in self.config.values() if isinstance(one, dict))
        return (self.config, *nested)

    @property
    def is_adapter(self) -> bool:
        config = self.snapshot.config
        return config is not None and config.name.endswith(ADAPTER_CONFIG)

    @cached_property
    def buffers(self) -> frozenset[str]:
        return self._named_by(StoredBuffer)

    @cached_property
    def unexpected(self) -> frozenset[str]:
        return self._named_by(Unexpected)

    @cached_property
    def quantization_data(self) -> frozenset[str]:
        return self._named_by(QuantizationData)

    def _named_by(self, kind: type[Finding]) -> frozenset[str]:
        findings = (one for one in self.outcome.findings if isinstance(one, kind))
        return frozenset(name for finding in findings for name in finding.names)

    def tensor(self, name: str) -> StoredTensor:
        return self.placed[name].tensor

    def is_zero(self, name: str) -> bool | None:
        """Return whether all numbers are zero; None if only a sample was read, which is zero."""
        read = self.values.get(name)
        if read is None or not read.numbers:
            return None
        return False if read.nonzero else True if read.is_complete else None

    def seems_zero(self, name: str, least: int) -> bool:
        """Return whether the numbers read are zero, and are all numbers or at least `least`."""
        read = self.values.get(name)
        if read is None or read.nonzero or not read.read:
            return False
        return read.is_complete or read.read >= least

    def runs(self, name: str, unit: int) -> Iterator[Span]:
        """Yield the spans of a tensor that were read, cut to complete units of `unit` bytes."""
        for run in self.bytes.runs(self.placed[name]):
            start, stop = -(-run.start // unit) * unit, run.stop // unit * unit
            if start < stop:
                yield Span(start, stop)

    def sample(self, name: str, most: int = SAMPLE) -> np.ndarray[Any, Any] | None:
        """Return the first numbers read of a tensor, up to `most` bytes, else None."""
        placed = self.placed[name]
        form = FORMATS.get(placed.dtype or "")
        if form is None:
            return None
        parts: list[Bytes] = []
        for run in self.runs(name, form.unit):
            left = (most - sum(map(len, parts))) // form.unit * form.unit
            data = self.bytes.read(placed, Span(run.start, min(run.stop, run.start + left)))
            if data is not None and left:
                parts.append(data)
        return np.asarray(form.decode(np.concatenate(parts))) if parts else None

    @cached_property
    def _profiles(self) -> dict[str, Profile | None]:
        return {}

    def profile(self, name: str) -> Profile | None:
        """Return statistics of a sample of a float tensor; None if nothing of it was read."""
        if name not in self._profiles:
            self._profiles[name] = self._profile(name)
        return self._profiles[name]

    def _profile(self, name: str) -> Profile | None:
        placed = self.placed[name]
        form = FORMATS.get(placed.dtype or "")
        if form is None or not form.is_float:
            return None
        data = self.spread_bytes(name, form.unit)
        return profile_of(form, data) if data is not None else None

    def spread_bytes(self, name: str, unit: int) -> Bytes | None:
        """Return complete units from eight places of a tensor; None if nothing was read."""
        pieces = spread_pieces(tuple(self.runs(name, unit)), unit)
        parts = (self.bytes.read(self.placed[name], one) for one in pieces)
        read = [part for part in parts if part is not None]
        return np.concatenate(read) if read else None

    @cached_property
    def _beginnings(self) -> dict[str, Beginning | None]:
        return {}

    def beginning(self, name: str) -> Beginning | None:
        """Return a digest of a tensor's first 16 KiB; None if they were not read."""
        if name not in self._beginnings:
            placed = self.placed[name]
            data = self.bytes.read(placed, Span(0, min(SAMPLE, placed.span.length)))
            self._beginnings[name] = (
                None
                if data is None
                else Beginning(
                    blake2b(data.data, digest_size=16).digest(), bool((data != data[:1]).any())
                )
            )
        return self._beginnings[name]

    def rows(self, name: str, width: int) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the numbers of a tensor as matrices of `width` columns, in blocks of rows."""
        placed = self.placed[name]
        form = FORMATS.get(placed.dtype or "")
        size = width // form.per_unit * form.unit if form else 0
        if form is None or not size:
            return
        step = max(1, BLOCK // size) * size
        for run in self.runs(name, size):
            for start in range(run.start, run.stop, step):
                data = self.bytes.read(placed, Span(start, min(start + step, run.stop)))
                if data is not None:
                    yield np.asarray(form.decode(data)).reshape(-1, width)

    def constant(self, name: str) -> float | None:
        """Return the value of all numbers in a sample; None if the values differ or are unknown."""
        numbers = self.sample(name)
        if numbers is None or not len(numbers) or not (numbers == numbers[0]).all():
            return None
        return float(numbers[0])

    def same(self, name: str, other: str) -> bool | None:
        """Return whether two tensors have the same bytes.

        Return None if the bytes that were read are equal but not complete, or if the dtypes or
        sizes differ.
        """
        return self._same(self.placed[name], self.placed[other])

    def same_in_all_files(self, name: str) -> bool | None:
        """Return whether all files with the tensor store the same bytes of it; None if unknown."""
        first, *others = self.copies.get(name, (self.placed[name],))
        results = {self._same(first, other) for other in others}
        return False if False in results else True if results == {True} else None

    def _same(self, first: Placed, second: Placed) -> bool | None:
        if first.tensor.dtype != second.tensor.dtype or first.span.length != second.span.length:
            return None
        for here, there in both_blocks(self.bytes, first, self.bytes, second):
            if not np.array_equal(here, there):
                return False
        return True if self._compared(first, second) == first.span.length else None

    def compared(self, name: str, other: str) -> int:
        """Count the bytes that were read of both tensors at the same offsets."""
        return self._compared(self.placed[name], self.placed[other])

    def _compared(self, *tensors: Placed) -> int:
        return sum(span.length for span in common_runs(*map(self.bytes.runs, tensors)))


def both_blocks(
    data: TensorBytes, placed: Placed, other_data: TensorBytes, other: Placed
) -> Iterator[tuple[Bytes, Bytes]]:
    """Yield the bytes of two tensors block by block, at offsets where both were read."""
    for span in common_runs(data.runs(placed), other_data.runs(other)):
        for start in range(span.start, span.stop, BLOCK):
            part = Span(start, min(start + BLOCK, span.stop))
            here, there = data.read(placed, part), other_data.read(other, part)
            if here is not None and there is not None:
                yield here, there


def common_runs(runs: Iterable[Span], other_runs: Iterable[Span]) -> Iterator[Span]:
    """Yield the intersections of two sorted sequences of spans."""
    others = tuple(other_runs)
    for run in runs:
        for second in others:
            start, stop = max(run.start, second.start), min(run.stop, second.stop)
            if start < stop:
                yield Span(start, stop)


def is_matrix(tensor: StoredTensor) -> bool:
    """Return whether at least two dimensions are larger than 1."""
    return sum(size > 1 for size in tensor.shape or ()) > 1


def holds_floats(tensor: StoredTensor) -> bool:
    form = FORMATS.get(tensor.dtype or "")
    return form is not None and form.is_float


class SampledBytes:
    """Access to the bytes of fetched spans; spans of one file do not touch each other."""

    def __init__(self, parts: Iterable[tuple[PlannedSpan, bytes]]) -> None:
        self.size = 0
        self._parts: dict[Path, list[tuple[Span, Bytes]]] = {}
        for (path, span), data in parts:
            self.size += len(data)
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


def fetch_sample(
    snapshot: Snapshot,
    planned: Sequence[PlannedSpan],
    token: str | None,
    say: Callable[[str], None],
) -> tuple[SampledBytes, Fetched]:
    """Read the planned spans of weight files on the Hub; return the bytes and the cost."""
    from auditor.downloader.hub import read_spans  # noqa: PLC0415 - 0.1 s

    file_by_path = {
        Path(head.name): RepoFile(name=head.name, size=head.size) for head in snapshot.headers
    }
    spans = [(file_by_path[path], span) for path, span in planned]
    parts, fetched = read_spans(snapshot.model, snapshot.commit or "", spans, token=token, say=say)
    return SampledBytes(zip(planned, parts, strict=True)), fetched


def sampled_values(
    placed: Sequence[Placed], data: SampledBytes, *, statistics: bool
) -> tuple[TensorValues, ...]:
    """Return statistics of each tensor with fetched numbers, in the order of `placed`."""
    values = (_values(tensor, data, statistics=statistics) for tensor in placed)
    return tuple(value for value in values if value is not None)


def _values(placed: Placed, data: SampledBytes, *, statistics: bool) -> TensorValues | None:
    counter = counter_of(placed.dtype, statistics=statistics)
    if counter is None:
        return None
    tally, unit = NumberTally(), counter.unit
    step = BLOCK // unit * unit
    for run in data.runs(placed):
        first, last = -(-run.start // unit) * unit, run.stop // unit * unit
        for start in range(first, last, step):
            block = data.read(placed, Span(start, min(start + step, last)))
            if block is not None:
                counter.count(block, tally)
    return values_of(placed, tally, statistics=statistics) if tally.read else None
