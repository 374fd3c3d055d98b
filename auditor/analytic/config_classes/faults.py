"""ConfigFault: why no model can be built from a config, and which of its keys are to blame."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from auditor.errors import CheckpointError

_MOST = 32  # of one config: a reader needs no more, and a hostile one may have thousands


class Blame(StrEnum):
    """Where a config is refused."""

    LIBRARY = "library"  # checks of this version of it alone; a model could be built
    MODEL = "model"  # a part of the model cannot be as the config asks for it
    CONFIG = "config"  # what the tensors would be does not follow


class ConfigFault(NamedTuple):
    """One reason, and the keys that it is about."""

    reason: str  # "pad_token_id is 32000, and the embedding has rows 0 to 31999"
    keys: tuple[str, ...]  # with the path to them, e.g. "text_config.pad_token_id"
    blame: Blame = Blame.MODEL


class FaultyConfigError(CheckpointError):
    """No model can be built from a config, and what its tensors would be does not follow."""

    def __init__(self, faults: tuple[ConfigFault, ...], target: str) -> None:
        super().__init__("; ".join(fault.reason for fault in faults))
        self.faults = faults
        self.target = target


def one_per_cause(faults: Iterable[ConfigFault]) -> tuple[ConfigFault, ...]:
    """One fault for each cause: what a key is blamed for first explains the rest of it."""
    kept: list[ConfigFault] = []
    blamed: set[str] = set()
    for fault in faults:
        if len(kept) < _MOST and (not fault.keys or not blamed.issuperset(fault.keys)):
            kept.append(fault)
            blamed.update(fault.keys)
    return tuple(kept)
