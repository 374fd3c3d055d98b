"""LoadReport: the report of from_pretrained with output_loading_info=True, as far as known."""

from collections.abc import Mapping
from typing import NamedTuple


class Mismatch(NamedTuple):
    """A loaded tensor whose shape is not the model's."""

    name: str  # in memory
    stored: tuple[int, ...]  # after conversion
    model: tuple[int, ...]


class LoadReport(NamedTuple):
    """The library's report of a checkpoint: sorted names in memory."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[Mismatch, ...] = ()
    raises: str | None = None  # why loading raises with any flags

    @property
    def names(self) -> frozenset[str]:
        """All names in the report."""
        return frozenset((*self.missing, *self.unexpected, *(one.name for one in self.mismatched)))


class Predicted(NamedTuple):
    """A load report, and the names in memory for each name of a finding."""

    report: LoadReport | None = None  # None if it cannot be determined
    in_memory: Mapping[str, tuple[str, ...]] | None = None  # None if other software loads it
    unchecked: tuple[str, ...] = ()  # why there is no report, if nothing else says so
