"""What findings are made of: a severity, and the tensors or the file that a kind is about.

A kind without fields of its own takes its base's __init__ as it is: each decorated class costs
every start of the program 0.3 ms.
"""

from collections.abc import Iterable
from enum import StrEnum
from heapq import nsmallest
from operator import attrgetter

from msgspec import Struct

from auditor.analytic import ExpectedTensor
from auditor.tensors import StoredTensor, learned, natural_key, naturally_sorted

# Names in one finding of tensors that nothing expects. Folding this many random names takes 0.3 s
# and 20 MB, more than a reader looks at; a model may have ten times as many.
MOST_NAMED = 20_000


class Severity(StrEnum):
    """Errors and warnings alarm; info explains."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


def learned_in(tensors: tuple[StoredTensor, ...]) -> int:
    return sum(learned(tensor) for tensor in tensors)


def expected_in(tensors: tuple[ExpectedTensor, ...]) -> int:
    return sum(tensor.elements for tensor in tensors if tensor.role.learned)


def by_name(tensors: Iterable[StoredTensor], most: int | None = None) -> tuple[StoredTensor, ...]:
    """Stored tensors in natural order of their names, then of their files; the first `most`."""
    found = list(tensors)
    if most is not None and len(found) > most:
        return tuple(nsmallest(most, found, key=_place))  # a place takes as much as a tensor
    return tuple(naturally_sorted(sorted(found, key=attrgetter("file")), attrgetter("name")))


def _place(tensor: StoredTensor) -> tuple[str, ...]:
    return (*natural_key(tensor.name), tensor.file)


class MatchedPair(Struct, frozen=True, kw_only=True):
    """A stored tensor and the expected one that it answers."""

    stored: StoredTensor
    expected: ExpectedTensor


class NoParameters:
    """About what has no parameters, and explains nothing of the difference."""

    @property
    def parameters(self) -> int:
        return 0

    @property
    def explains(self) -> int:
        return 0


class OfExpected(Struct, frozen=True, kw_only=True):
    """About tensors that are expected and not there; named as the target class names them."""

    tensors: tuple[ExpectedTensor, ...]
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        return expected_in(self.tensors)

    @property
    def explains(self) -> int:
        return -expected_in(self.tensors)


class OfStored(Struct, frozen=True, kw_only=True):
    """About tensors that are there and that no expected parameter answers."""

    tensors: tuple[StoredTensor, ...]
    reason: str
    silent: bool = False  # from_pretrained does not report them

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        return learned_in(self.tensors)

    @property
    def explains(self) -> int:
        return learned_in(self.tensors)


class Uncounted(NoParameters, OfStored, frozen=True, kw_only=True):
    """Stored, and none of it a parameter of its own: explains nothing of the difference."""


class OfPairs(Struct, frozen=True, kw_only=True):
    """About stored tensors and the expected ones that they answer."""

    pairs: tuple[MatchedPair, ...]
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pair.stored.name for pair in self.pairs)

    @property
    def parameters(self) -> int:
        return expected_in(tuple(pair.expected for pair in self.pairs))

    @property
    def explains(self) -> int:
        return 0


class OfFile(Struct, frozen=True, kw_only=True):
    """About a file, and the tensors in it that are concerned.

    `hidden` are the expected tensors that cannot be seen because of it.
    """

    file: str
    reason: str
    tensors: tuple[str, ...] = ()
    hidden: tuple[ExpectedTensor, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.tensors or tuple(tensor.name for tensor in self.hidden) or (self.file,)

    @property
    def parameters(self) -> int:
        return expected_in(self.hidden)

    @property
    def explains(self) -> int:
        return -expected_in(self.hidden)
