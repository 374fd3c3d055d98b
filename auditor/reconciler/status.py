"""The fate of one tensor, and the status of a module from the fates below it."""

from enum import IntFlag
from typing import Literal

ModuleStatus = Literal[
    "equal",  # stored = expected
    "unused",
    "unexpected",
    "newly-initialized",
    "missing",
    "mismatched",
    "differs",  # several fates below this prefix, and not all is as expected
    "buffer",  # nothing but buffers
    "quantization-data",  # nothing but what serves a packed weight
    "tied",  # nothing stored: shares the values of another tensor
    "duplicate",
    "unreadable",  # hidden behind a broken header or an absent shard
    "unchecked",  # no expectation, or no shapes, to compare with
]


class Fate(IntFlag):
    """What became of a stored or an expected tensor; the fates below a prefix are or-ed."""

    EQUAL = 1
    UNUSED = 2
    UNEXPECTED = 4
    MISMATCHED = 8
    BUFFER = 16
    DUPLICATE = 32
    NEWLY_INITIALIZED = 64
    MISSING = 128
    TIED = 256
    UNREADABLE = 512
    UNCHECKED = 1024
    QUANTIZATION_DATA = 2048


_NAMES: dict[int, ModuleStatus] = {
    Fate.EQUAL.value: "equal",
    Fate.UNUSED.value: "unused",
    Fate.UNEXPECTED.value: "unexpected",
    Fate.MISMATCHED.value: "mismatched",
    Fate.BUFFER.value: "buffer",
    Fate.DUPLICATE.value: "duplicate",
    Fate.NEWLY_INITIALIZED.value: "newly-initialized",
    Fate.MISSING.value: "missing",
    Fate.TIED.value: "tied",
    Fate.UNREADABLE.value: "unreadable",
    Fate.UNCHECKED.value: "unchecked",
    Fate.QUANTIZATION_DATA.value: "quantization-data",
}
_QUIET = (Fate.EQUAL | Fate.BUFFER | Fate.TIED | Fate.QUANTIZATION_DATA).value


def status_of(fates: int) -> ModuleStatus:
    """One word for or-ed fates; buffers, quantization data and tied tensors disturb nothing."""
    if fates in _NAMES:
        return _NAMES[fates]
    if not fates & ~_QUIET:
        return "equal"
    loud = fates & ~_QUIET
    if fates & Fate.EQUAL.value and loud != Fate.UNCHECKED.value:
        return "differs"
    return _NAMES.get(loud, "differs")
