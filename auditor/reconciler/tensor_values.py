"""The numbers that were read of each tensor, as a report contains them."""

from typing import NamedTuple

from msgspec import Struct, field

from auditor.checkpoint.snapshot import Fetched


class TensorValues(Struct, frozen=True, kw_only=True):
    """The numbers of one tensor that were read.

    Real and imaginary part of a complex number count as two. For a GGUF tensor in blocks these are
    its scales. Fields that need `--statistics` are None without it.
    """

    name: str
    file: str
    dtype: str
    numbers: int  # all numbers of the tensor
    read: int  # numbers that were read
    nan: int
    inf: int
    nonzero: bool  # whether a number that was read is not zero
    absmax: float | None  # of finite numbers; None if there are none
    fits_bf16: bool | None = None  # whether all lower halves of F32 are zero; else None
    zeros: int | None = None
    minimum: float | None = None  # this and the next three are of finite numbers
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None  # of the population: divided by the count
    sampled: bool = False  # whether some numbers of the tensor were not read

    @property
    def is_complete(self) -> bool:
        """Whether each number of the tensor was read."""
        return self.read == self.numbers


class ModuleChanges(NamedTuple):
    """The tensors of one kind of module compared with those of a base."""

    module: str  # the name after the number of a layer
    unchanged: int
    changed: int


class BaseComparison(Struct, frozen=True, kw_only=True):
    """Tensors compared with those of equal names in another model, as far as both were read."""

    model: str
    commit: str | None
    unchanged: int
    changed: int
    uncompared: int  # missing in the base, of another shape or dtype there, or not sampled
    modules: tuple[ModuleChanges, ...]  # sorted by name


class ValuesRead(Struct, frozen=True, kw_only=True):
    """The numbers that were read, and their share of all numbers."""

    tensors: tuple[TensorValues, ...]  # sorted by file and by place in it
    bytes: int  # bytes that were read; holes of a sparse file count as read
    of: int  # bytes of all tensors
    of_tensors: int  # all tensors
    sampled: bool = False  # whether only chosen spans were read
    fetched: Fetched = field(default_factory=Fetched)  # the traffic for them
    base: BaseComparison | None = None  # None without a comparison
