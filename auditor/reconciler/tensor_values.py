"""What was read of the numbers of each tensor, as a report has it."""

from typing import NamedTuple

from msgspec import Struct, field

from auditor.checkpoint.snapshot import Fetched


class TensorValues(Struct, frozen=True, kw_only=True):
    """The numbers of one tensor, as far as they were read.

    Of complex numbers real and imaginary part count as two; of a GGUF tensor in blocks these are
    its scales. What needs `--statistics` is None without it.
    """

    name: str
    file: str
    dtype: str
    numbers: int  # that there are
    read: int  # that were looked at
    nan: int
    inf: int
    nonzero: bool  # some number that was read is not zero
    absmax: float | None  # of finite numbers; None: there is none
    fits_bf16: bool | None = None  # of F32: the lower halves of all are zero; None: all of them is
    zeros: int | None = None
    minimum: float | None = None  # these four of finite numbers
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None  # of the population: divided by the count
    sampled: bool = False  # some numbers of the tensor were not read

    @property
    def whole(self) -> bool:
        """Each number of the tensor was read."""
        return self.read == self.numbers


class ModuleChanges(NamedTuple):
    """Tensors of one kind of module beside those of a base: how many are the same."""

    module: str  # without what stands before the number of a layer
    unchanged: int
    changed: int


class BaseComparison(Struct, frozen=True, kw_only=True):
    """Tensors beside those of the same names in another model, as far as both were read."""

    model: str
    commit: str | None
    unchanged: int
    changed: int
    uncompared: int  # not in the base, of another shape or dtype there, or not in a sample
    modules: tuple[ModuleChanges, ...]  # sorted by name


class ValuesRead(Struct, frozen=True, kw_only=True):
    """All that was read of the numbers, and how much of what there is."""

    tensors: tuple[TensorValues, ...]  # sorted by file and by place in it
    bytes: int  # that were read; holes of a sparse file count as read
    of: int  # bytes of all tensors
    of_tensors: int  # that there are
    sampled: bool = False  # spans were chosen, and nothing is known of what lies between them
    fetched: Fetched = field(default_factory=Fetched)  # what that cost
    base: BaseComparison | None = None  # None: nothing was compared
