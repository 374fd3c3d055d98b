"""The closed set of findings. One class a kind, because each carries different evidence.

The first line of its docstring says what the kind means, the paragraph `To do:` what to do about
it: README's table and the rules in SARIF are printed from them.

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
    """The declared class needs the tensor, and no file stores it.

    To do: Upload the weights again, or declare in `architectures` the class that was saved: loading
    would start the tensor from random values.
    """

    kind: ClassVar = "missing"
    severity: ClassVar = Severity.ERROR


class NewlyInitialized(_OfExpected):
    """The target class has the tensor and the checkpoint does not: loading initializes it.

    The declared class, or the repository's own loader, does without it.

    To do: Fine-tune the model before you use what the tensor computes: its values are random.
    """

    kind: ClassVar = "newly-initialized"
    severity: ClassVar = Severity.INFO


@dataclass(frozen=True, kw_only=True)
class Unexpected(_OfStored):
    """A tensor is stored that no class of the model's family uses.

    Of more than MOST_NAMED the first are named.

    To do: Remove it before you publish, or correct `architectures` and the config if the model
    needs it: loading leaves it out.
    """

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
    """The target class does not use the tensor, and another class of its family does.

    To do: Nothing; load the class that the finding names if you need the tensor.
    """

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
    """A tensor is stored that is not learned: position_ids, inv_freq, an attention mask.

    To do: Nothing; it is not counted as parameters.
    """

    kind: ClassVar = "buffer"
    severity: ClassVar = Severity.INFO


class QuantizationData(_Uncounted):
    """A quantized weight needs the tensor to be unpacked: scales, zero points, g_idx, absmax.

    To do: Nothing; it is not counted as parameters.
    """

    kind: ClassVar = "quantization-data"
    severity: ClassVar = Severity.INFO


class BadQuantization(_Uncounted):
    """Packed tensors contradict their layout, the quantization config or the architecture.

    To do: Correct the bits, the group size or the list of modules in `quantization_config`, or
    quantize the model again.
    """

    kind: ClassVar = "bad-quantization"
    severity: ClassVar = Severity.ERROR


@dataclass(frozen=True, kw_only=True)
class Duplicate(_Uncounted):
    """A parameter is stored twice: under two names, or in two shards.

    To do: Save the model again with `save_pretrained`, which stores it once; until then, check that
    both copies have the same values.
    """

    of: tuple[str, ...]  # the name of the copy that counts, one for each tensor

    kind: ClassVar = "duplicate"
    severity: ClassVar = Severity.WARNING


@dataclass(frozen=True, kw_only=True)
class WrongDtype(_Uncounted):
    """A tensor is stored in another dtype than the config declares.

    To do: Set `dtype` in the config to what is stored, or save the weights in the declared dtype.
    """

    declared: str  # of the safetensors format

    kind: ClassVar = "wrong-dtype"
    severity: ClassVar = Severity.WARNING


class Mismatched(_OfPairs):
    """A tensor is stored under the right name, with another shape than the config implies.

    To do: Correct the size in the config (`vocab_size` after new tokens, for example), or save
    config and weights again together.
    """

    kind: ClassVar = "mismatched"
    severity: ClassVar = Severity.ERROR

    @property
    def explains(self) -> int:
        learned = (pair.stored for pair in self.pairs if pair.expected.role.learned)
        return sum(tensor.elements or 0 for tensor in learned) - self.parameters


class Renamed(_OfPairs):
    """A tensor is stored under an older or a prefixed name, which loading translates.

    To do: Nothing for transformers; other software may need the names that `save_pretrained` writes
    today.
    """

    kind: ClassVar = "renamed"
    severity: ClassVar = Severity.INFO


@dataclass(frozen=True, kw_only=True)
class TiedWeight(_OfExpected):
    """A tensor is not stored, and need not be: it shares the values of another one.

    To do: Nothing; its parameters are counted once.
    """

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
    """A weight file is not part of what was audited: a variant, another framework, another folder.

    To do: Nothing; audit it by its own path or with `--variant` if you load it.
    """

    files: tuple[str, ...]
    reason: str

    kind: ClassVar = "other-weights"
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
    """Our closed form and transformers do not expect the same tensors: one of the two is wrong.

    To do: Report it to this project with the model's name; the checkpoint itself may be sound.
    """

    target: str  # the class, which stands for the tensors where the total alone is in dispute
    disputes: tuple[DisputedTensor, ...]
    reason: str

    kind: ClassVar = "formula-disputed"
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
    """The header of a weight file cannot be read, or breaks the format.

    To do: Upload the file again; if it is a Git LFS pointer, push the file that it stands for.
    """

    kind: ClassVar = "bad-header"
    severity: ClassVar = Severity.ERROR


class BadIndex(_OfFile):
    """The index of the shards cannot be read, or contradicts the files.

    To do: Upload the shards that it names, or save the model again, with a new index.
    """

    kind: ClassVar = "bad-index"
    severity: ClassVar = Severity.ERROR


class BadSize(_OfFile):
    """A file is shorter or longer than its header declares.

    To do: Upload the file again: a shorter one was cut off on its way.
    """

    kind: ClassVar = "bad-size"
    severity: ClassVar = Severity.ERROR


class WrongTotal(_OfFile):
    """The index states another number of parameters than there are; no loader reads it.

    To do: Correct `total_parameters` in the metadata of the index, or remove it.
    """

    kind: ClassVar = "wrong-total"
    severity: ClassVar = Severity.WARNING


@dataclass(frozen=True, kw_only=True)
class Unsafe(_OfFile):
    """Loading the file would import or call what no state dict needs; nothing of it was run.

    To do: Do not load the file; ask for the weights as safetensors, or publish them so.
    """

    imports: tuple[str, ...]  # one line for each name, in file order: "posix.system('id')"

    kind: ClassVar = "unsafe"
    severity: ClassVar = Severity.ERROR


class CopyDiffers(_OfFile):
    """The copy of the weights in torch files is not the same, or cannot be compared.

    To do: Delete the torch files, or convert them again: which weights a user gets depends on what
    loads them.
    """

    kind: ClassVar = "copy-differs"
    severity: ClassVar = Severity.WARNING


@dataclass(frozen=True, kw_only=True)
class MissingComponent:
    """A component that the repository declares is not there, or has no weights.

    To do: Upload its folder, or remove it from the file that declares it.
    """

    file: str  # that declares it
    folders: tuple[str, ...]
    reason: str

    kind: ClassVar = "missing-component"
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
    """A config cannot be read, or no model can be built from it.

    To do: Correct the key that the finding names, and check that `AutoConfig.from_pretrained` takes
    it.
    """

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
