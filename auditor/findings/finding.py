"""The interface of findings, the rows of the table of kinds, and findings read from JSON."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeGuard,
    TypeVar,
)

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins
from msgspec.structs import replace

# The bound is for the schema alone: a faulty count is written, not refused.
Count = Annotated[int, Meta(extra_json_schema={"minimum": 0})]


class Severity(StrEnum):
    """The severities: errors and warnings count as alarms, infos are only explanations."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """The place of the severity, the worst first."""
        return [*Severity].index(self)


class Finding(Struct, frozen=True):
    """A difference between a checkpoint and what its config implies, or a fault of its files.

    Law 3: the `explains` of a report's findings add up to stored minus expected parameters.
    """

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def severity(self) -> Severity: ...

    @property
    @abstractmethod
    def reason(self) -> str: ...

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The tensors, files or keys that the finding concerns."""

    @property
    def count(self) -> int:
        """The number of names that the finding concerns, including those that it does not list."""
        return len(self.names)

    @property
    def parameters(self) -> int:
        """The number of parameters that the finding concerns."""
        return 0

    @property
    def explains(self) -> int:
        """The finding's contribution to the difference: stored minus expected parameters."""
        return 0

    @property
    def file(self) -> str | None:
        """The file that the finding is about; None if its tensors may be in any file."""
        return None

    @property
    @abstractmethod
    def evidence(self) -> Mapping[str, Any]:
        """The JSON keys and values that only findings with this evidence have."""

    @abstractmethod
    def only(self, matches: Callable[[str], bool]) -> Self:
        """Return the finding restricted to the names for which `matches` is true."""


class MadeFinding(Finding, frozen=True):
    """The base class of findings that an audit makes; a subclass has the evidence as fields."""

    kind: str
    severity: Severity
    reason: str

    # The field with one item for each name; "": the finding has one name.
    _items: ClassVar[str] = ""
    _aligned: ClassVar[tuple[str, ...]] = ()  # fields with one value for each item, or None
    # The JSON keys of this class, which are attributes unless the class overrides `evidence`; keys
    # whose value is None are left out.
    _written: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def _name_of(item: Any) -> str:
        return item if isinstance(item, str) else str(item.name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(self._name_of, getattr(self, self._items)))

    @property
    def evidence(self) -> Mapping[str, Any]:
        values = {key: getattr(self, key) for key in self._written}
        return {key: value for key, value in values.items() if value is not None}

    def only(self, matches: Callable[[str], bool]) -> Self:
        if not self._items:
            return self
        items = getattr(self, self._items)
        places = [at for at, item in enumerate(items) if matches(self._name_of(item))]
        fields = {name: getattr(self, name) for name in (self._items, *self._aligned)}
        for name, values in fields.items():
            fields[name] = None if values is None else tuple(values[at] for at in places)
        return replace(self, **fields)


P = ParamSpec("P")
E_co = TypeVar("E_co", bound=Finding, covariant=True)


class FindingKind(Struct, Generic[P, E_co], frozen=True, eq=False):
    """A row of the table of kinds; a kind has several rows if its severity depends on numbers."""

    severity: ClassVar[Severity]

    kind: str
    evidence: Callable[Concatenate[str, Severity, P], E_co]  # a class of findings
    meaning: str  # one sentence or more
    to_do: str
    details: str = ""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> E_co:
        """Return a finding of this kind."""
        return self.evidence(self.kind, self.severity, *args, **kwargs)

    def describes(self, finding: Finding) -> TypeGuard[E_co]:
        """Whether a finding is of this kind, whatever its severity."""
        return finding.kind == self.kind


class ErrorKind(FindingKind[P, E_co], frozen=True, eq=False):
    """The kind of an error."""

    severity = Severity.ERROR


class WarningKind(FindingKind[P, E_co], frozen=True, eq=False):
    """The kind of a warning."""

    severity = Severity.WARNING


class InfoKind(FindingKind[P, E_co], frozen=True, eq=False):
    """The kind of an explanation."""

    severity = Severity.INFO


# --- as JSON --------------------------------------------------------------------------------------


class StoredTensorObject(Struct, frozen=True):
    """A stored tensor of a pair."""

    name: str
    dtype: str | None
    shape: tuple[Count, ...] | None
    file: str


class ExpectedTensorObject(Struct, frozen=True):
    """An expected tensor of a pair."""

    name: str
    shape: tuple[Count, ...]


class PairObject(Struct, frozen=True):
    """A stored tensor and the expected tensor that it matches."""

    stored: StoredTensorObject
    expected: ExpectedTensorObject


class ImpliedObject(Struct, frozen=True):
    """A tensor as the closed form or the oracle lists it."""

    shape: tuple[Count, ...]
    role: Literal["parameter", "buffer", "legacy", "extra", "tied"]
    tied_to: str | None


class DisputeObject(Struct, frozen=True):
    """A tensor as the closed form and as the oracle list it; null where a list lacks it."""

    name: str
    closed_form: ImpliedObject | None
    oracle: ImpliedObject | None


class StatementObject(Struct, frozen=True):
    """A statement of a file."""

    file: str
    key: str  # "" if the statement is not about a key
    value: str  # JSON, shortened; "" if the key is missing


class RecordedFinding(Finding, frozen=True, kw_only=True):
    """A finding as JSON has it; keys of other evidence are absent."""

    kind: str
    severity: Severity
    names: tuple[str, ...] = ()
    # The names as patterns: {0-11} for every number from 0 to 11, {bias,weight} for each word.
    folded: tuple[str, ...] = ()
    count: Count  # of names; of unexpected tensors more than 20,000 are counted and not named
    parameters: Count
    reason: str
    explains: int = 0  # its share of parameters observed minus parameters expected
    # For each name, the names under which from_pretrained looks for it; null if they are no
    # tensors, or other software loads them.
    in_memory: tuple[tuple[str, ...], ...] | None = None
    # For each name, whether load_report has none of those in memory; null without a load_report.
    silent: tuple[bool, ...] | None = None
    used_by: tuple[str, ...] | UnsetType = UNSET
    learned: Count | UnsetType = UNSET  # how many of the tensors are parameters, not buffers
    tied_to: tuple[str, ...] | UnsetType = UNSET
    pairs: tuple[PairObject, ...] | UnsetType = UNSET
    of: tuple[str, ...] | UnsetType = UNSET  # for each tensor, the one of which it is a copy
    declared: str | UnsetType = UNSET  # the dtype that the config declares
    nan: Count | UnsetType = UNSET
    inf: Count | UnsetType = UNSET
    named_file: str | UnsetType | None = field(default=UNSET, name="file")
    hidden: tuple[str, ...] | UnsetType = UNSET  # expected tensors that the file may contain
    # A line for each unknown name that loading would import or call; none if it was not followed.
    imports: tuple[str, ...] | UnsetType = UNSET
    says: tuple[StatementObject, ...] | UnsetType = UNSET
    fix: str | UnsetType = UNSET  # what to change in this repository
    ids: tuple[Count, ...] | UnsetType = UNSET  # token ids
    rows: Count | tuple[Count, ...] | UnsetType = UNSET  # of the embedding: how many, or which
    rows_of: str | UnsetType = UNSET  # the tensor that embeds tokens
    layers: tuple[tuple[str, ...], ...] | UnsetType = UNSET  # groups of identical layers
    disputes: tuple[DisputeObject, ...] | UnsetType = UNSET
    text: str | UnsetType = UNSET  # the number as it is written
    claim: Count | UnsetType = UNSET
    actual: Count | UnsetType = UNSET
    engine: str | UnsetType = UNSET
    version: str | UnsetType = UNSET

    @property
    def file(self) -> str | None:
        # The file only declares a missing component, and may be sound.
        is_subject = self.kind != "missing-component"
        return self.named_file if is_subject and isinstance(self.named_file, str) else None

    @property
    def evidence(self) -> Mapping[str, Any]:
        values = to_builtins(self)
        return {key: values[key] for key in values if key not in _COMMON}

    def only(self, _matches: Callable[[str], bool]) -> Self:
        return self  # JSON has no counts for a part of the names


_COMMON = frozenset(RecordedFinding.__struct_fields__[:10])
