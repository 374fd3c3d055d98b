"""LoadReport: the report of from_pretrained with output_loading_info=True, as far as known."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field


class Mismatch(NamedTuple):
    """A loaded tensor whose shape differs from the model's."""

    name: str  # its name in memory
    stored: tuple[int, ...]  # shape after conversion
    model: tuple[int, ...]


class LoadReport(Struct, frozen=True):
    """The report of from_pretrained for a checkpoint, with sorted names in memory.

    It is the report with output_loading_info=True and ignore_mismatched_sizes=True.
    """

    missing: tuple[str, ...] = field(default=(), name="missing_keys")
    unexpected: tuple[str, ...] = field(default=(), name="unexpected_keys")
    # Name, shape in the checkpoint after conversion, shape in the model.
    mismatched: tuple[Mismatch, ...] = field(default=(), name="mismatched_keys")
    raises: str | None = None  # why loading raises whatever its arguments are

    @property
    def names(self) -> frozenset[str]:
        """All names in the report."""
        return frozenset((*self.missing, *self.unexpected, *(one.name for one in self.mismatched)))


class Predicted(NamedTuple):
    """A load report, and for each name in a finding the names in memory."""

    report: LoadReport | None = None  # None if it cannot be determined
    in_memory: Mapping[str, tuple[str, ...]] | None = None  # None if other software loads it
    unchecked: tuple[str, ...] = ()  # why there is no report, unless findings explain it
