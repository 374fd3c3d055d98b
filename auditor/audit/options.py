"""Options: what a caller chooses about an audit, beside the checkpoint."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from auditor.checkpoint.snapshot import Snapshot
from auditor.reconciler.ignore import Ignore
from auditor.report import Report, Unaudited
from auditor.tensors import Depth


class LookAtValues(Protocol):
    """Reads numbers of what was audited, and adds what they say.

    Of several `models` in one repository each gets its share of what may be asked of the Hub;
    `redirected` says whether the files are on another host, None: the snapshot tells.
    """

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int = 1,
        redirected: bool | None = None,
    ) -> Report | Unaudited: ...


class Options(Struct, frozen=True, kw_only=True):
    """The same for every model of a repository, but for `target`, which is for its own model."""

    requested: str  # the model as the user wrote it
    target: str | None = None  # the class to audit for; None: what the checkpoint declares
    depth: int | Depth | None = None  # how deep module rows go; None: all the way
    ignore: tuple[Ignore, ...] = ()  # findings to leave out of the verdict
    oracle: bool = False  # ask transformers for a second opinion of the closed form
    values: LookAtValues | None = None  # None: numbers are nobody's business
    # What the class is given beside its config: add_pooling_layer and its like.
    arguments: Mapping[str, bool] = MappingProxyType({})
    weights: bool = True  # compare what is stored; else the config alone is read
