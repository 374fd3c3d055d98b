"""Statistics of the numbers that were read of each tensor, as reports contain them."""

from msgspec import Struct, field

from auditor.checkpoint.snapshot import Fetched


class TensorValues(Struct, frozen=True, kw_only=True):
    """Statistics of the numbers of one tensor that were read.

    The real and imaginary part of a complex number count as two numbers. For a GGUF tensor in
    blocks, the numbers are its scales. Fields that need `--statistics` are None without it.
    """

    name: str
    file: str
    dtype: str
    numbers: int  # how many numbers the tensor has
    read: int  # how many of them were read
    nan: int
    inf: int
    nonzero: bool  # whether some number that was read is not zero
    absmax: float | None  # the largest finite magnitude; None without a finite number
    fits_bf16: bool | None = None  # whether the lower halves of F32 are all zero; None if not F32
    zeros: int | None = None
    minimum: float | None = None  # this and the next three fields are of the finite numbers
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None  # of the population: divided by the count, not by count - 1
    sampled: bool = False  # whether some numbers were not read

    @property
    def is_complete(self) -> bool:
        """Whether every number of the tensor was read."""
        return self.read == self.numbers


class ModuleChanges(Struct, frozen=True):
    """A comparison of all modules with one name, such as `mlp.up_proj`, with those of a base."""

    module: str  # name after the layer's number
    unchanged: int
    changed: int


class BaseComparison(Struct, frozen=True, kw_only=True):
    """A comparison of the tensors with those of equal names in another model, as far as read."""

    model: str
    commit: str | None = field(name="commit_sha")
    unchanged: int
    changed: int
    uncompared: int  # missing in the base, of other shape or dtype, or not read
    modules: tuple[ModuleChanges, ...]  # sorted by name


class ValuesRead(Struct, frozen=True, kw_only=True):
    """The statistics of the numbers that were read, and the number of bytes read."""

    tensors: tuple[TensorValues, ...]  # sorted by file, then by position in the file
    bytes: int  # bytes that were read
    of: int  # bytes of all tensors in the files
    of_tensors: int  # number of all tensors
    sampled: bool = False  # whether only chosen ranges of the files were read
    fetched: Fetched = field(default_factory=Fetched)  # network traffic for reading
    base: BaseComparison | None = None  # None without a comparison
