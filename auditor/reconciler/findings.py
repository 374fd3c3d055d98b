"""The closed set of findings. One class a kind, because each carries different evidence.

Every finding has `names` (sorted), `parameters` (how many learned numbers it is about),
`explains` (its signed share of parameters stored minus parameters expected) and a `reason`.
The `explains` of all findings of a report add up to its difference: law 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from typing import ClassVar

from auditor.analytic import ExpectedTensor, Role
from auditor.layouts import learned
from auditor.tensors import StoredTensor, natural_key


class Severity(StrEnum):
    """Errors and warnings alarm; info explains."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


def _stored(tensors: tuple[StoredTensor, ...]) -> int:
    return sum(learned(tensor) for tensor in tensors)


def by_name(tensors: Iterable[StoredTensor], most: int | None = None) -> tuple[StoredTensor, ...]:
    """Stored tensors in natural order of their names, then of their files; the first `most`."""
    found = list(tensors)
    if most is not None and len(found) > most:
        return tuple(nsmallest(most, found, key=_place))  # a place takes as much as a tensor
    return tuple(sorted(found, key=_place))


def _place(tensor: StoredTensor) -> tuple[tuple[str, str], str]:
    return natural_key(tensor.name), tensor.file


def _expected(tensors: tuple[ExpectedTensor, ...]) -> int:
    return sum(tensor.elements for tensor in tensors if tensor.role.learned)


# Names in one finding of tensors that nothing expects. Folding this many random names takes 0.3 s
# and 20 MB, more than a reader looks at; a model may have ten times as many.
MOST_NAMED = 20_000


@dataclass(frozen=True, kw_only=True)
class MatchedPair:
    """A stored tensor and the expected one that it answers."""

    stored: StoredTensor
    expected: ExpectedTensor


# A kind without fields of its own takes its base's __init__ as it is: each decorated class costs
# every start of the program 0.3 ms.


@dataclass(frozen=True, kw_only=True)
class _OfExpected:
    """About tensors that are expected and not there; named as the target class names them."""

    tensors: tuple[ExpectedTensor, ...]
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        return _expected(self.tensors)

    @property
    def explains(self) -> int:
        return -_expected(self.tensors)


@dataclass(frozen=True, kw_only=True)
class _OfStored:
    """About tensors that are there and that no expected parameter answers."""

    tensors: tuple[StoredTensor, ...]
    reason: str
    silent: bool = False  # from_pretrained does not report them

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        return _stored(self.tensors)

    @property
    def explains(self) -> int:
        return _stored(self.tensors)


@dataclass(frozen=True, kw_only=True)
class _Uncounted(_OfStored):
    """Stored, and none of it a parameter of its own: explains nothing of the difference."""

    @property
    def parameters(self) -> int:
        return 0

    @property
    def explains(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class _OfPairs:
    """About stored tensors and the expected ones that they answer."""

    pairs: tuple[MatchedPair, ...]
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pair.stored.name for pair in self.pairs)

    @property
    def parameters(self) -> int:
        return _expected(tuple(pair.expected for pair in self.pairs))

    @property
    def explains(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class _OfFile:
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
        return _expected(self.hidden)

    @property
    def explains(self) -> int:
        return -_expected(self.hidden)


class Missing(_OfExpected):
    """The class the checkpoint declares needs it; it is not stored."""

    kind: ClassVar = "missing"
    severity: ClassVar = Severity.ERROR


class NewlyInitialized(_OfExpected):
    """The target class uses it, the declared class does not: loading initialises it afresh."""

    kind: ClassVar = "new"
    severity: ClassVar = Severity.INFO


@dataclass(frozen=True, kw_only=True)
class Unexpected(_OfStored):
    """Stored; no class of the family uses it. Of more than MOST_NAMED the first are named."""

    more: int = 0  # tensors that are not named
    more_parameters: int = 0  # theirs

    kind: ClassVar = "unexpected"
    severity: ClassVar = Severity.WARNING

    @property
    def parameters(self) -> int:
        return _stored(self.tensors) + self.more_parameters

    @property
    def explains(self) -> int:
        return self.parameters


@dataclass(frozen=True, kw_only=True)
class Unused(_OfStored):
    """Stored; the target class does not use it, but a sibling class of the same family does."""

    used_by: tuple[str, ...]
    copies: bool = False  # tied for the sibling: its parameters count elsewhere

    kind: ClassVar = "unused"
    severity: ClassVar = Severity.INFO

    @property
    def parameters(self) -> int:
        return 0 if self.copies else _stored(self.tensors)

    @property
    def explains(self) -> int:
        return self.parameters


class StoredBuffer(_Uncounted):
    """Stored, not learned: position_ids, inv_freq, attention masks."""

    kind: ClassVar = "buffer"
    severity: ClassVar = Severity.INFO


class QuantizationData(_Uncounted):
    """What a quantised layout stores beside the packed weight."""

    kind: ClassVar = "bookkeeping"
    severity: ClassVar = Severity.INFO


class BadQuantization(_Uncounted):
    """Packed tensors contradict their layout, the config or the architecture."""

    kind: ClassVar = "bad-layout"
    severity: ClassVar = Severity.ERROR


@dataclass(frozen=True, kw_only=True)
class Duplicate(_Uncounted):
    """A second copy of a parameter: under another name, or in another shard."""

    of: tuple[str, ...]  # the name of the copy that counts, one for each tensor

    kind: ClassVar = "duplicate"
    severity: ClassVar = Severity.WARNING


@dataclass(frozen=True, kw_only=True)
class WrongDtype(_Uncounted):
    """Stored in another dtype than the config declares."""

    declared: str  # of the safetensors format

    kind: ClassVar = "wrong-dtype"
    severity: ClassVar = Severity.WARNING


class Mismatched(_OfPairs):
    """Stored under the right name with the wrong shape."""

    kind: ClassVar = "mis-shaped"
    severity: ClassVar = Severity.ERROR

    @property
    def explains(self) -> int:
        learned = (pair.stored for pair in self.pairs if pair.expected.role.learned)
        return sum(tensor.elements or 0 for tensor in learned) - self.parameters


class Renamed(_OfPairs):
    """Stored under an older or a prefixed name, which loading translates."""

    kind: ClassVar = "renamed"
    severity: ClassVar = Severity.INFO


@dataclass(frozen=True, kw_only=True)
class TiedWeight(_OfExpected):
    """Not stored as numbers of its own, and rightly so: it shares the values of another tensor."""

    to: tuple[str, ...]  # the stored tensor whose values it shares, one for each tensor

    kind: ClassVar = "tied"
    severity: ClassVar = Severity.INFO

    @property
    def parameters(self) -> int:
        return 0  # counted once, where it is stored

    @property
    def explains(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class OtherWeights:
    """A weight file that does not belong to the audited set."""

    files: tuple[str, ...]
    reason: str

    kind: ClassVar = "beside"
    severity: ClassVar = Severity.INFO

    @property
    def names(self) -> tuple[str, ...]:
        return self.files

    @property
    def parameters(self) -> int:
        return 0

    @property
    def explains(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class DisputedTensor:
    """One tensor as the closed form has it, and as the oracle has it; None: it has none."""

    name: str
    closed_form: ExpectedTensor | None
    oracle: ExpectedTensor | None


@dataclass(frozen=True, kw_only=True)
class FormulaDisputed:
    """The closed form and the oracle differ: one of the two is wrong, whatever is stored."""

    target: str  # the class, which stands for the tensors where the total alone is in dispute
    disputes: tuple[DisputedTensor, ...]
    reason: str

    kind: ClassVar = "disputed"
    severity: ClassVar = Severity.WARNING

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dispute.name for dispute in self.disputes) or (self.target,)

    @property
    def parameters(self) -> int:
        return sum(_larger(dispute) for dispute in self.disputes)

    @property
    def explains(self) -> int:
        return 0  # stored is compared with the closed form, and with that alone


def _larger(dispute: DisputedTensor) -> int:
    """The learned numbers in dispute: those of the side that has more of them."""
    sides = (side for side in (dispute.closed_form, dispute.oracle) if side is not None)
    return max((side.elements for side in sides if side.role is Role.PARAMETER), default=0)


class BadHeader(_OfFile):
    """A weight file's header cannot be read, or breaks the format."""

    kind: ClassVar = "bad-header"
    severity: ClassVar = Severity.ERROR


class BadIndex(_OfFile):
    """The index is broken, or says what the files do not bear out."""

    kind: ClassVar = "bad-index"
    severity: ClassVar = Severity.ERROR


class BadSize(_OfFile):
    """A file is shorter or longer than its header declares."""

    kind: ClassVar = "bad-size"
    severity: ClassVar = Severity.ERROR


class WrongTotal(_OfFile):
    """The index states another number of parameters than there are; no loader reads it."""

    kind: ClassVar = "wrong-total"
    severity: ClassVar = Severity.WARNING


@dataclass(frozen=True, kw_only=True)
class Unsafe(_OfFile):
    """Loading the file would import or call what no state dict needs. Nothing of it was run."""

    imports: tuple[str, ...]  # one line for each name, in file order: "posix.system('id')"

    kind: ClassVar = "unsafe"
    severity: ClassVar = Severity.ERROR


class CopyDiffers(_OfFile):
    """The same weights once more in another format, and they are not the same."""

    kind: ClassVar = "twin"
    severity: ClassVar = Severity.WARNING


@dataclass(frozen=True, kw_only=True)
class MissingComponent:
    """A component that the repository declares is not there, or is without weights."""

    file: str  # that declares it
    folders: tuple[str, ...]
    reason: str

    kind: ClassVar = "absent"
    severity: ClassVar = Severity.ERROR

    @property
    def names(self) -> tuple[str, ...]:
        return self.folders

    @property
    def parameters(self) -> int:
        return 0  # not known without its config

    @property
    def explains(self) -> int:
        return 0


class BadConfig(_OfFile):
    """config.json is broken, or holds what no model can be built from."""

    kind: ClassVar = "bad-config"
    severity: ClassVar = Severity.ERROR


Finding = (
    Missing
    | NewlyInitialized
    | Unexpected
    | Unused
    | StoredBuffer
    | QuantizationData
    | BadQuantization
    | Duplicate
    | WrongDtype
    | Mismatched
    | Renamed
    | TiedWeight
    | OtherWeights
    | FormulaDisputed
    | BadHeader
    | BadIndex
    | BadSize
    | WrongTotal
    | BadConfig
    | Unsafe
    | CopyDiffers
    | MissingComponent
)


def of_tensors(finding: Finding) -> bool:
    """Whether its names are tensors', stored or expected, of one checkpoint and one class."""
    return isinstance(finding, _OfExpected | _OfStored | _OfPairs)


def count_of(finding: Finding) -> int:
    """How many names a finding is about, those that it does not name included."""
    return len(finding.names) + (finding.more if isinstance(finding, Unexpected) else 0)
