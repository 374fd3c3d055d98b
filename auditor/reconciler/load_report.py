"""LoadReport: what from_pretrained returns with output_loading_info=True, as far as it is known."""

from collections.abc import Mapping
from typing import NamedTuple


class Mismatch(NamedTuple):
    """A tensor that is found, and has another shape than the model's."""

    name: str  # in memory
    stored: tuple[int, ...]  # after conversion
    model: tuple[int, ...]


class LoadReport(NamedTuple):
    """What the library reports of a checkpoint: sorted, under the names in memory."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[Mismatch, ...] = ()
    raises: str | None = None  # why loading raises, whatever its flags are

    @property
    def names(self) -> frozenset[str]:
        """Every name in it."""
        return frozenset((*self.missing, *self.unexpected, *(one.name for one in self.mismatched)))


class Predicted(NamedTuple):
    """A load report, and where each name of a finding is looked for."""

    report: LoadReport | None = None  # None: it cannot be told
    in_memory: Mapping[str, tuple[str, ...]] | None = None  # None: other software loads it
    unchecked: tuple[str, ...] = ()  # why it cannot be told, where nothing else says so
