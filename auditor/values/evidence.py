"""The input of the rules about numbers: an outcome, statistics of each tensor, and its bytes."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from msgspec import Struct

from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader.local_file import BLOCK
from auditor.findings import Finding, FindingKind, QuantizationData, StoredBuffer, Unexpected
from auditor.reconciler.tensor_values import TensorValues
from auditor.report import Report, Unaudited
from auditor.tensors import Span, StoredTensor
from auditor.values.number_formats import FORMATS, Bytes, NumberFormat
from auditor.values.tally import LOW_HALF
from auditor.values.tensor_bytes import (
    Placed,
    TensorBytes,
    comparable_bytes,
    equal_bytes,
    readable_units,
)

SAMPLE = 16 * 1024  # bytes of a tensor that rules read if a sample suffices


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    """The input of a rule; its methods return None for numbers that were not read."""

    outcome: Report | Unaudited
    snapshot: Snapshot
    placed: Mapping[str, Placed]  # by name; the first shard's tensor if two have the name
    values: Mapping[str, TensorValues]  # likewise; only tensors that were read
    data: TensorBytes
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

    def _named_by(self, kind: FindingKind[..., Finding]) -> frozenset[str]:
        findings = (one for one in self.outcome.findings if kind.describes(one))
        return frozenset(name for finding in findings for name in finding.names)

    def tensor(self, name: str) -> StoredTensor:
        return self.placed[name].tensor

    def form(self, name: str) -> NumberFormat | None:
        """Return the format of a tensor's numbers; None if it is not known."""
        return FORMATS.get(self.placed[name].dtype or "")

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

    def read(self, name: str, span: Span) -> Bytes | None:
        """Return the bytes in a span of a tensor; None if some were not read."""
        data = np.empty(span.length, np.uint8)
        return data if self.data.fill(self.placed[name], span.start, data.data) else None

    def runs(self, name: str, unit: int) -> Iterator[Span]:
        """Yield the spans of a tensor that were read, cut to complete units of `unit` bytes."""
        return readable_units(self.data, self.placed[name], unit)

    def sample(self, name: str, most: int = SAMPLE) -> np.ndarray[Any, Any] | None:
        """Return the first numbers read of a tensor, up to `most` bytes, else None."""
        form = self.form(name)
        if form is None:
            return None
        parts: list[Bytes] = []
        for run in self.runs(name, form.unit):
            left = (most - sum(map(len, parts))) // form.unit * form.unit
            data = self.read(name, Span(run.start, min(run.stop, run.start + left)))
            if data is not None and left:
                parts.append(data)
        return np.asarray(form.decode(np.concatenate(parts))) if parts else None

    def profile(self, name: str) -> "Profile | None":
        """Return statistics of a sample of a float tensor; None if nothing of it was read."""
        if name not in self._profiles:
            form = self.form(name)
            data = self.spread_bytes(name, form.unit) if form and form.is_float else None
            self._profiles[name] = None if form is None or data is None else profile_of(form, data)
        return self._profiles[name]

    @cached_property
    def _profiles(self) -> dict[str, "Profile | None"]:
        return {}

    def spread_bytes(self, name: str, unit: int) -> Bytes | None:
        """Return complete units from eight places of a tensor; None if nothing was read."""
        pieces = spread_pieces(tuple(self.runs(name, unit)), unit)
        parts = (self.read(name, one) for one in pieces)
        read = [part for part in parts if part is not None]
        return np.concatenate(read) if read else None

    def beginning(self, name: str) -> bytes | None:
        """Return a digest of a tensor's first 16 KiB; None if they were not read or do not vary."""
        data = self.read(name, Span(0, min(SAMPLE, self.placed[name].span.length)))
        if data is None or not (data != data[:1]).any():
            return None
        return blake2b(data.data, digest_size=16).digest()

    def rows(self, name: str, width: int) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the numbers of a tensor as matrices of `width` columns, in blocks of rows."""
        form = self.form(name)
        size = width // form.per_unit * form.unit if form else 0
        if form is None or not size:
            return
        step = max(1, BLOCK // size) * size
        for run in self.runs(name, size):
            for start in range(run.start, run.stop, step):
                data = self.read(name, Span(start, min(start + step, run.stop)))
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
        are_equal, size = equal_bytes(self.data, first, self.data, second)
        return False if not are_equal else True if size == first.span.length else None

    def compared(self, name: str, other: str) -> int:
        """Count the bytes that were read of both tensors at the same offsets."""
        return comparable_bytes(self.data, self.placed[name], self.placed[other])


def is_matrix(tensor: StoredTensor) -> bool:
    """Return whether at least two dimensions are larger than 1."""
    return sum(size > 1 for size in tensor.shape or ()) > 1


def holds_floats(tensor: StoredTensor) -> bool:
    form = FORMATS.get(tensor.dtype or "")
    return form is not None and form.is_float


# --- samples that are spread over a tensor ------------------------------------------------------

# Most rules decide from eight pieces of 1 KiB, and read a tensor again only if they are suspicious.
_PIECES = 8
_PIECE = 1024  # bytes


class Profile(Struct, frozen=True, kw_only=True):
    """Statistics of the finite numbers in a sample of one tensor."""

    numbers: int
    nonzero: int
    subnormal: int  # nonzero numbers below the smallest normal number of the dtype
    padded: int  # nonzero F32 numbers whose lower 16 bits are zero
    spread: float  # the standard deviation of log2 |x| over the nonzero numbers, in binades
    normal_spread: float  # likewise, without subnormal numbers
    large: float  # the magnitude that 90 % of the nonzero numbers do not exceed
    varied: bool  # whether two numbers differ


def spread_pieces(runs: Sequence[Span], unit: int) -> tuple[Span, ...]:
    """Return eight spans of 1 KiB, spread evenly over the runs; all runs if they are that small."""
    total = sum(run.length for run in runs)
    if total <= _PIECES * _PIECE:
        return tuple(runs)
    size = _PIECE // unit * unit
    spans: list[Span] = []
    for at in range(_PIECES):
        offset = at * (total - size) // (_PIECES - 1) // unit * unit
        for run in runs:
            if offset < run.length:
                start = run.start + offset
                spans.append(Span(start, min(start + size, run.stop)))
                break
            offset -= run.length
    return tuple(spans)


def profile_of(form: NumberFormat, data: Bytes) -> Profile:
    """Return the profile of a float format's numbers."""
    numbers = form.decode(data)
    magnitudes = np.abs(numbers)
    is_nonzero = (magnitudes > 0) & (magnitudes < np.inf)
    nonzero = magnitudes[is_nonzero]
    least = least_normal(form)
    is_normal = nonzero >= least
    subnormal = len(nonzero) - int(np.count_nonzero(is_normal))
    logs = np.log2(nonzero, dtype=np.float64 if nonzero.dtype == np.float64 else np.float32)
    spread = float(logs.std()) if len(logs) else 0.0
    padded = 0
    if form.number == np.float32:
        padded = int(np.count_nonzero((data.view(form.word) & LOW_HALF == 0) & is_nonzero))
    at = len(nonzero) * 9 // 10
    return Profile(
        numbers=int(np.count_nonzero(magnitudes < np.inf)),
        nonzero=len(nonzero),
        subnormal=subnormal,
        padded=padded,
        spread=spread,
        normal_spread=log_spread(nonzero[is_normal]) if subnormal else spread,
        large=float(np.partition(nonzero, at)[at]) if len(nonzero) else 0.0,
        varied=bool(len(numbers) and (numbers != numbers[0]).any()),
    )


def peak(numbers: np.ndarray) -> float:
    """Return the largest magnitude of the finite numbers as a multiple of their root mean square.

    Return 0 if all are zero.
    """
    squares = np.square(numbers[np.isfinite(numbers)].astype(np.float64))
    mean = float(squares.mean()) if len(squares) else 0.0
    return float(np.sqrt(squares.max() / mean)) if mean else 0.0


def log_spread(numbers: np.ndarray) -> float:
    """Return the standard deviation of log2 |x| over the nonzero finite numbers; 0 without any."""
    magnitudes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)].astype(np.float64))
    return float(np.log2(magnitudes).std()) if len(magnitudes) else 0.0


def least_normal(form: NumberFormat) -> float:
    """Return the smallest normal number of an IEEE format; 0 for the formats of 8 bits or less."""
    if form.table is not None or form.number is None:
        return 0.0 if form.table is not None else 2.0**-126  # BF16
    return float(np.finfo(form.number).smallest_normal)
