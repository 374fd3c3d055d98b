"""The ConfigFault class: a reason why transformers cannot load a config or build its model."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, assert_never

from auditor.analytic.config_classes.declarations import library
from auditor.errors import CheckpointError

MOST_FAULTS = 32  # most faults of one config; a hostile config can have thousands


class FaultOrigin(StrEnum):
    """The step of loading that fails."""

    CLASS = "class"  # the config class refuses the config; the shapes are known
    MODEL = "model"  # the model class cannot be built; the shapes are known
    SHAPES = "shapes"  # the shapes do not follow from the config


class ConfigFault(NamedTuple):
    """A reason why transformers rejects a config, and the config keys that cause it."""

    reason: str  # "pad_token_id is 32000, and the embedding has rows 0 to 31999"
    keys: tuple[str, ...]  # with the path to them, e.g. "text_config.pad_token_id"
    origin: FaultOrigin = FaultOrigin.MODEL


class FaultyConfigError(CheckpointError):
    """The error for a config that does not determine the shapes of a class's tensors."""

    def __init__(self, faults: tuple[ConfigFault, ...], target: str) -> None:
        super().__init__("; ".join(fault.reason for fault in faults))
        self.faults = faults
        self.target = target


def one_per_cause(faults: Iterable[ConfigFault]) -> tuple[ConfigFault, ...]:
    """Drop each fault whose keys all appear in earlier faults, and all faults after the 32nd."""
    new_faults: list[ConfigFault] = []
    explained_keys: set[str] = set()
    for fault in faults:
        if len(new_faults) < MOST_FAULTS and (
            not fault.keys or not explained_keys.issuperset(fault.keys)
        ):
            new_faults.append(fault)
            explained_keys.update(fault.keys)
    return tuple(new_faults)


def fault_sentence(fault: ConfigFault, target: str) -> str:
    """Return the fault as a sentence that names the library or the class that fails."""
    match fault.origin:
        case FaultOrigin.CLASS:
            return f"{library().short} refuses it: {fault.reason}"
        case FaultOrigin.MODEL:
            return f"{fault.reason}: {library().short} cannot build {target}"
        case FaultOrigin.SHAPES:
            return fault.reason
        case never:
            assert_never(never)
