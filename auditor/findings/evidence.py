"""The base classes of findings, with the properties that every format reads.

mypy rejects a kind that lacks a property which is abstract here.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from heapq import nsmallest
from operator import attrgetter
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor
from auditor.tensors import StoredTensor, learned, natural_key, naturally_sorted

# The most unexpected tensors that one finding names. Folding so many random names takes 0.3 s and
# 20 MB, and nobody reads more; a model may have ten times as many.
MOST_NAMED = 20_000


class Severity(StrEnum):
    """The severities: errors and warnings count as alarms, infos are only explanations."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(Struct, frozen=True, kw_only=True):
    """A difference between a checkpoint and what its config implies, or a fault of its files."""

    reason: str

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def severity(self) -> Severity: ...

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The tensors, files or keys that the finding concerns."""

    @property
    def count(self) -> int:
        """The number of names that the finding concerns, including those that it does not list."""
        return len(self.names)

    @property
    @abstractmethod
    def parameters(self) -> int:
        """The number of parameters that the finding concerns."""

    @property
    @abstractmethod
    def explains(self) -> int:
        """The finding's contribution to the difference: stored minus expected parameters."""

    @property
    @abstractmethod
    def file(self) -> str | None:
        """The file that the finding is about; None if its tensors may be in any file."""

    @property
    @abstractmethod
    def evidence(self) -> Mapping[str, Any]:
        """The JSON keys and values that only findings of this kind have."""

    @abstractmethod
    def only(self, matches: Callable[[str], bool]) -> Self:
        """Return the finding restricted to the names for which `matches` is true."""


class FindingKind(Finding, frozen=True, kw_only=True):
    """The base class of the kinds, each of which sets `kind` and `severity` in its class."""

    kind: ClassVar[str]
    severity: ClassVar[Severity]

    @property
    def file(self) -> str | None:
        return None

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {}  # the names are the only evidence


def learned_in(tensors: tuple[StoredTensor, ...]) -> int:
    return sum(learned(tensor) for tensor in tensors)


def expected_in(tensors: tuple[ExpectedTensor, ...]) -> int:
    return sum(tensor.elements for tensor in tensors if tensor.role.learned)


def by_name(tensors: Iterable[StoredTensor], most: int | None = None) -> tuple[StoredTensor, ...]:
    """Sort stored tensors naturally by name, then by file; return all, or only the first `most`."""
    unsorted = list(tensors)
    if most is not None and len(unsorted) > most:
        return tuple(nsmallest(most, unsorted, key=_place))  # a key is as large as a tensor
    return tuple(naturally_sorted(sorted(unsorted, key=attrgetter("file")), attrgetter("name")))


def _place(tensor: StoredTensor) -> tuple[str, ...]:
    return (*natural_key(tensor.name), tensor.file)


class MatchedPair(Struct, frozen=True, kw_only=True):
    """A stored tensor and the expected tensor that it matches."""

    stored: StoredTensor
    expected: ExpectedTensor

    @property
    def evidence(self) -> Mapping[str, Any]:
        stored = {key: getattr(self.stored, key) for key in ("name", "dtype", "shape", "file")}
        return {
            "stored": stored,
            "expected": {"name": self.expected.name, "shape": self.expected.shape},
        }


class NoParameters:
    """A mixin for findings without parameters, whose `explains` is 0."""

    @property
    def parameters(self) -> int:
        return 0

    @property
    def explains(self) -> int:
        return 0


def _matching_fields(
    finding: "OfExpected | OfStored", matches: Callable[[str], bool]
) -> dict[str, tuple[Any, ...]]:
    """Return the fields that have a value for each tensor, restricted to tensors that match."""
    tensors: Iterable[ExpectedTensor | StoredTensor] = finding.tensors
    places = [at for at, tensor in enumerate(tensors) if matches(tensor.name)]
    fields = ("tensors", *finding.aligned)
    return {field: tuple(getattr(finding, field)[at] for at in places) for field in fields}


class OfExpected(FindingKind, frozen=True, kw_only=True):
    """A finding about missing expected tensors, which have the names of the target class."""

    tensors: tuple[ExpectedTensor, ...]

    aligned: ClassVar[tuple[str, ...]] = ()  # fields with one value for each tensor

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        return expected_in(self.tensors)

    @property
    def explains(self) -> int:
        return -expected_in(self.tensors)

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, **_matching_fields(self, matches))


class OfStored(FindingKind, frozen=True, kw_only=True):
    """A finding about stored tensors that match no expected parameter."""

    tensors: tuple[StoredTensor, ...]
    silent: bool = False  # whether from_pretrained does not report these tensors

    aligned: ClassVar[tuple[str, ...]] = ()  # fields with one value for each tensor

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        return learned_in(self.tensors)

    @property
    def explains(self) -> int:
        return learned_in(self.tensors)

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, **_matching_fields(self, matches))


class Uncounted(NoParameters, OfStored, frozen=True, kw_only=True):
    """A finding about stored tensors that are not counted as parameters."""


class OfPairs(FindingKind, frozen=True, kw_only=True):
    """A finding about stored tensors and the expected tensors that they match."""

    pairs: tuple[MatchedPair, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pair.stored.name for pair in self.pairs)

    @property
    def parameters(self) -> int:
        return expected_in(tuple(pair.expected for pair in self.pairs))

    @property
    def explains(self) -> int:
        return 0

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"pairs": [pair.evidence for pair in self.pairs]}

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, pairs=tuple(one for one in self.pairs if matches(one.stored.name)))


class OfFile(FindingKind, frozen=True, kw_only=True):
    """A finding about a file and some of its tensors.

    `hidden` are expected tensors that the file may contain but that cannot be read.
    """

    file: str
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

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"file": self.file, "hidden": [tensor.name for tensor in self.hidden]}

    def only(self, matches: Callable[[str], bool]) -> Self:
        hidden = tuple(tensor for tensor in self.hidden if matches(tensor.name))
        return replace(self, tensors=tuple(filter(matches, self.tensors)), hidden=hidden)
