"""The user's choices for an audit, except the checkpoint."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from auditor.checkpoint.snapshot import Snapshot
from auditor.findings.ignore import Ignore
from auditor.report import Report, Unaudited
from auditor.tensors import Depth


class LookAtValues(Protocol):
    """A reader of an audited model's numbers, which adds findings about them to the outcome.

    `models` is the number of models in the repository, each of which gets its share of the Hub
    requests. `redirected` is whether the files are on another host; if it is None, the snapshot
    decides.
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
    """The options for every model of a repository; `target` is for its root model only."""

    requested: str  # the model's name or path as the user wrote it
    target: str | None = None  # the class to audit for; None for the declared one
    depth: int | Depth | None = None  # depth down to which modules have rows; None for all
    ignore: tuple[Ignore, ...] = ()  # findings that do not count
    oracle: bool = False  # compare the closed form with transformers
    kv_cache: bool = False  # let transformers fill the KV cache of a class without a closed form
    values: LookAtValues | None = None  # None if no numbers are read
    engines: tuple[str, ...] = ()  # engines whose verdict is requested
    # Arguments of the class beside its config, such as add_pooling_layer.
    arguments: Mapping[str, bool] = MappingProxyType({})
    weights: bool = True  # compare stored tensors; if false, only read the config


class TrialOptions(Options, frozen=True, kw_only=True):
    """The options of an audit by the diagnosis, which reads only its findings."""
