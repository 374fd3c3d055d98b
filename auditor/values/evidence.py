"""What rules look at: an outcome, what was read of each tensor, and a second look at bytes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader.local_blocks import BLOCK, BlockFile
from auditor.reconciler.findings import QuantizationData, StoredBuffer, Unexpected
from auditor.reconciler.tensor_values import TensorValues
from auditor.report import Report, Unaudited
from auditor.tensors import Span, StoredTensor
from auditor.values.number_formats import FORMATS, Bytes
from auditor.values.placing import Placed

SAMPLE = 16 * 1024  # bytes of a tensor that are looked at where a sample will do


class TensorBytes(Protocol):
    """A second look at what was read."""

    def read(self, tensor: Placed, span: Span) -> Bytes | None:
        """Bytes of a tensor, counted from its first; None: they were not read."""


class LocalBytes:
    """Bytes of open local files."""

    def __init__(self, files: Mapping[Path, BlockFile]) -> None:
        self._files = files

    def read(self, tensor: Placed, span: Span) -> Bytes | None:
        found = np.empty(span.length, np.uint8)
        self._files[tensor.path].read_into(found.data, tensor.span.start + span.start)
        return found


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that a rule may ask for; of what was not read it gets None."""

    outcome: Report | Unaudited
    snapshot: Snapshot
    placed: Mapping[str, Placed]  # by name, of two shards the first
    values: Mapping[str, TensorValues]  # likewise; of what was read
    bytes: TensorBytes

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The config's values; {} where it cannot be read, which a finding says."""
        try:
            found = json.loads(self.snapshot.config.content) if self.snapshot.config else {}
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def is_adapter(self) -> bool:
        config = self.snapshot.config
        return config is not None and config.name.endswith(ADAPTER_CONFIG)

    @cached_property
    def buffers(self) -> frozenset[str]:
        found = (one for one in self.outcome.findings if isinstance(one, StoredBuffer))
        return frozenset(name for one in found for name in one.names)

    @cached_property
    def unexpected(self) -> frozenset[str]:
        found = (one for one in self.outcome.findings if isinstance(one, Unexpected))
        return frozenset(name for one in found for name in one.names)

    @cached_property
    def quantization_data(self) -> frozenset[str]:
        found = (one for one in self.outcome.findings if isinstance(one, QuantizationData))
        return frozenset(name for one in found for name in one.names)

    def tensor(self, name: str) -> StoredTensor:
        return self.placed[name].tensor

    def is_zero(self, name: str) -> bool | None:
        """Whether each number is zero; None: not all of them were read."""
        read = self.values.get(name)
        if read is None or not read.numbers:
            return None
        return False if read.nonzero else True if read.whole else None

    def sample(self, name: str, most: int = SAMPLE) -> np.ndarray[Any, Any] | None:
        """The first numbers of a tensor, in `most` bytes at the most; None: they were not read."""
        placed = self.placed[name]
        form = FORMATS.get(placed.tensor.dtype or "")
        if form is None:
            return None
        size = min(placed.span.length, most) // form.unit * form.unit
        data = self.bytes.read(placed, Span(0, size)) if size else None
        return None if data is None else np.asarray(form.decode(data))

    def constant(self, name: str) -> float | None:
        """The number that all of a sample are; None: they are several, or not known."""
        found = self.sample(name)
        if found is None or not len(found) or not (found == found[0]).all():
            return None
        return float(found[0])

    def blocks(self, name: str, size: int = BLOCK) -> Iterator[Bytes | None]:
        """All bytes of a tensor, block by block."""
        placed = self.placed[name]
        for start in range(0, placed.span.length, size):
            yield self.bytes.read(placed, Span(start, min(start + size, placed.span.length)))

    def same(self, one: str, other: str) -> bool | None:
        """Whether two tensors hold the same bytes.

        None: what was read of them differs nowhere, or their dtypes are not the same.
        """
        first, second = self.placed[one], self.placed[other]
        if first.tensor.dtype != second.tensor.dtype or first.span.length != second.span.length:
            return None
        unread = False
        for here, there in zip(self.blocks(one), self.blocks(other), strict=True):
            if here is None or there is None:
                unread = True
            elif not np.array_equal(here, there):
                return False
        return None if unread else True


def is_matrix(tensor: StoredTensor) -> bool:
    """Two of its dimensions or more are more than 1."""
    return sum(size > 1 for size in tensor.shape or ()) > 1


def holds_floats(tensor: StoredTensor) -> bool:
    form = FORMATS.get(tensor.dtype or "")
    return form is not None and form.is_float
