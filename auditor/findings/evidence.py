"""The classes of findings that an audit makes: one for each sort of evidence."""

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor, Role
from auditor.findings.finding import MadeFinding
from auditor.tensors import StoredTensor, learned, natural_key, naturally_sorted

# The most unexpected tensors that one finding names. Folding so many random names takes 0.3 s and
# 20 MB, and nobody reads more; a model may have ten times as many.
MOST_NAMED = 20_000


def by_name(tensors: Iterable[StoredTensor], most: int | None = None) -> tuple[StoredTensor, ...]:
    """Sort stored tensors naturally by name, then by file; return all, or only the first `most`."""
    unsorted = list(tensors)
    if most is not None and len(unsorted) > most:
        # A key is as large as a tensor.
        return tuple(nsmallest(most, unsorted, key=lambda one: (*natural_key(one.name), one.file)))
    return tuple(naturally_sorted(sorted(unsorted, key=attrgetter("file")), attrgetter("name")))


def _expected_in(tensors: Iterable[ExpectedTensor]) -> int:
    return sum(tensor.elements for tensor in tensors if tensor.role.learned)


# --- of tensors ---------------------------------------------------------------------------------


class OfTensors(MadeFinding, frozen=True, kw_only=True):
    """A finding about stored tensors, or about expected tensors that are not stored."""

    tensors: tuple[ExpectedTensor, ...] | tuple[StoredTensor, ...]

    _items = "tensors"


class OfExpected(OfTensors, frozen=True, kw_only=True):
    """A finding about missing expected tensors, which have the names of the target class."""

    tensors: tuple[ExpectedTensor, ...]

    @property
    def parameters(self) -> int:
        return _expected_in(self.tensors)

    @property
    def explains(self) -> int:
        return -self.parameters


class OfInitialized(OfExpected, frozen=True, kw_only=True):
    """A finding about tensors that loading initializes; the others of them are buffers."""

    _written = ("learned",)

    @property
    def learned(self) -> int:
        """The number of tensors that are parameters."""
        return sum(tensor.role.learned for tensor in self.tensors)


class OfTied(OfTensors, frozen=True, kw_only=True):
    """A finding about expected tensors whose parameters are counted once, as another tensor's."""

    tensors: tuple[ExpectedTensor, ...]
    tied_to: tuple[str, ...]  # for each tensor, the stored tensor with its values

    _aligned = ("tied_to",)
    _written = ("tied_to",)


class OfStored(OfTensors, frozen=True, kw_only=True):
    """A finding about stored tensors that match no expected parameter."""

    tensors: tuple[StoredTensor, ...]
    silent: bool = False  # whether from_pretrained does not report these tensors
    more: int = 0  # number of tensors that are not named
    more_parameters: int = 0  # number of parameters of those tensors
    known_to: str = ""  # a class of the family that expects these names with other shapes

    @property
    def count(self) -> int:
        return len(self.tensors) + self.more

    @property
    def parameters(self) -> int:
        return sum(map(learned, self.tensors)) + self.more_parameters

    @property
    def explains(self) -> int:
        return self.parameters


class OfUnused(OfStored, frozen=True, kw_only=True):
    """A finding about stored tensors that other classes of the family use."""

    used_by: tuple[str, ...]
    copies: bool = False  # whether a sibling ties it: then its parameters are counted elsewhere

    _written = ("used_by",)

    @property
    def parameters(self) -> int:
        return 0 if self.copies else sum(map(learned, self.tensors))


class OfUncounted(OfStored, frozen=True, kw_only=True):
    """A finding about stored tensors that are not counted as parameters."""

    declared: str | None = None  # another dtype than the stored one, by its name in safetensors

    _written = ("declared",)

    @property
    def parameters(self) -> int:
        return 0


class OfCopies(OfUncounted, frozen=True, kw_only=True):
    """A finding about stored tensors whose values are stored a second time."""

    of: tuple[str, ...]  # for each tensor, the name of the copy that is counted

    _aligned = ("of",)
    _written = ("of",)


class OfValues(OfStored, frozen=True, kw_only=True):
    """A finding about the numbers in tensors; it explains no difference in counts."""

    of: tuple[str, ...] | None = None  # for each tensor, the one with which it was compared
    counts: tuple[tuple[int, int], ...] | None = None  # for each tensor, the numbers of NaN and Inf
    rows: tuple[int, ...] | None = None  # token ids, ascending
    layers: tuple[tuple[str, ...], ...] | None = None  # groups of identical layers

    _aligned = ("of", "counts")
    _written = ("of", "nan", "inf", "rows", "layers")

    @property
    def explains(self) -> int:
        return 0

    @property
    def nan(self) -> int | None:
        return None if self.counts is None else sum(nan for nan, _ in self.counts)

    @property
    def inf(self) -> int | None:
        return None if self.counts is None else sum(inf for _, inf in self.counts)


class MatchedPair(Struct, frozen=True, kw_only=True):
    """A stored tensor and the expected tensor that it matches."""

    stored: StoredTensor
    expected: ExpectedTensor

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def evidence(self) -> Mapping[str, Any]:
        stored = {key: getattr(self.stored, key) for key in ("name", "dtype", "shape", "file")}
        return {
            "stored": stored,
            "expected": {"name": self.expected.name, "shape": self.expected.shape},
        }


class OfPairs(MadeFinding, frozen=True, kw_only=True):
    """A finding about stored tensors and the expected tensors that they match."""

    pairs: tuple[MatchedPair, ...]

    _items = "pairs"
    _written = ("pairs",)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pair.stored.name for pair in self.pairs)

    @property
    def parameters(self) -> int:
        return _expected_in(pair.expected for pair in self.pairs)

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"pairs": [pair.evidence for pair in self.pairs]}


class OfMismatches(OfPairs, frozen=True, kw_only=True):
    """A finding about stored tensors with another shape than the expected tensors."""

    @property
    def explains(self) -> int:
        learned = (pair.stored for pair in self.pairs if pair.expected.role.learned)
        return sum(tensor.elements or 0 for tensor in learned) - self.parameters


class DisputedTensor(Struct, frozen=True, kw_only=True):
    """A tensor as the closed form and as the oracle list it; None where a list lacks it."""

    name: str
    closed_form: ExpectedTensor | None
    oracle: ExpectedTensor | None

    @property
    def parameters(self) -> int:
        """The larger of the tensor's two numbers of parameters."""
        sides = (side for side in (self.closed_form, self.oracle) if side is not None)
        return max((side.elements for side in sides if side.role is Role.PARAMETER), default=0)

    @property
    def evidence(self) -> Mapping[str, Any]:
        def expected(tensor: ExpectedTensor | None) -> Mapping[str, Any] | None:
            return tensor and {
                "shape": tensor.shape,
                "role": tensor.role,
                "tied_to": tensor.tied_to,
            }

        sides = {"closed_form": expected(self.closed_form), "oracle": expected(self.oracle)}
        return {"name": self.name, **sides}


class OfDisputes(MadeFinding, frozen=True, kw_only=True):
    """A finding about tensors that our closed form and the oracle expect differently."""

    target: str  # the class; it is the name if only the total is in dispute
    disputes: tuple[DisputedTensor, ...]

    _items = "disputes"
    _written = ("disputes",)

    @property
    def names(self) -> tuple[str, ...]:
        return super().names or (self.target,)

    @property
    def parameters(self) -> int:
        return sum(dispute.parameters for dispute in self.disputes)

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"disputes": [dispute.evidence for dispute in self.disputes]}


# --- of files, keys and counts --------------------------------------------------------------------


class OfFile(MadeFinding, frozen=True, kw_only=True):
    """A finding about a file and some of its tensors.

    `hidden` are expected tensors that the file may contain but that cannot be read.
    """

    file: str
    tensors: tuple[str, ...] = ()
    hidden: tuple[ExpectedTensor, ...] = ()

    _written = ("file", "hidden")

    @property
    def names(self) -> tuple[str, ...]:
        return self.tensors or tuple(tensor.name for tensor in self.hidden) or (self.file,)

    @property
    def parameters(self) -> int:
        return _expected_in(self.hidden)

    @property
    def explains(self) -> int:
        return -self.parameters

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"file": self.file, "hidden": [tensor.name for tensor in self.hidden]}

    def only(self, matches: Callable[[str], bool]) -> Self:
        hidden = tuple(tensor for tensor in self.hidden if matches(tensor.name))
        return replace(self, tensors=tuple(filter(matches, self.tensors)), hidden=hidden)


class OfImports(OfFile, frozen=True, kw_only=True):
    """A finding about a file whose loading may run code."""

    imports: tuple[str, ...] = ()  # a line for each name: "posix.system('id') at byte 2"

    _written = ("file", "imports")

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"file": self.file, "imports": self.imports}


class OfFiles(MadeFinding, frozen=True, kw_only=True):
    """A finding about complete files and no tensor in particular."""

    files: tuple[str, ...]

    _items = "files"


class OfFolders(MadeFinding, frozen=True, kw_only=True):
    """A finding about components of a repository, by their folders."""

    declared_in: str  # a file name; it is not the finding's file, which may be sound
    folders: tuple[str, ...]

    _items = "folders"
    _written = ("file",)

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"file": self.declared_in}


class OfKeys(MadeFinding, frozen=True, kw_only=True):
    """A finding about keys of files: (file, key, value) for each, "" for a missing key or value."""

    says: tuple[tuple[str, str, str], ...]  # the value is JSON, shortened
    fix: str  # what to change in this repository
    ids: tuple[int, ...] | None = None  # sorted token ids; None: it is not about tokens
    rows: int | None = None  # of the embedding for these ids
    rows_of: str | None = None  # the tensor with these rows, or the config's key for their number

    _items = "says"
    _written = ("file", "says", "fix", "ids", "rows", "rows_of")

    @property
    def file(self) -> str:
        return self.says[0][0]

    @staticmethod
    def _name_of(item: Any) -> str:
        file, key, _ = item
        return str(key or file)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*super().names}))

    @property
    def evidence(self) -> Mapping[str, Any]:
        says = [{"file": file, "key": key, "value": value} for file, key, value in self.says]
        return {**super().evidence, "says": says}


class OfCount(MadeFinding, frozen=True, kw_only=True):
    """A finding about a published number: its source, its text, and the true number."""

    where: str  # a key of the Hub's answer, or the repository's name
    text: str
    claim: int
    actual: int

    _written = ("text", "claim", "actual")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.where,)


class OfEngine(MadeFinding, frozen=True, kw_only=True):
    """A finding about a serving engine."""

    engine: str
    version: str

    _written = ("engine", "version")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.engine,)
