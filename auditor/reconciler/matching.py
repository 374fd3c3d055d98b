"""The matching of stored tensors with expected ones, by the rules by which loading renames."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntFlag, StrEnum
from functools import cache
from itertools import chain, compress
from operator import eq, itemgetter, not_
from typing import NamedTuple

from msgspec import Struct, field

from auditor.analytic import Expectation, ExpectedTensor
from auditor.analytic.expectation import Listed, Names
from auditor.analytic.loading import ChangedName, Loading, forms_with_prefix
from auditor.layouts.packing import LogicalTensor, as_stored_tensor
from auditor.tensors import StoredTensor, natural_key


class Step(StrEnum):
    """One change that loading makes to a stored name before it looks the name up in the model."""

    LEGACY = "LayerNorm.gamma and LayerNorm.beta are older names of weight and bias"
    NORM = "weight_g and weight_v are older names of a parametrized weight"
    DOUBLED = "some versions wrote model.language_model with one model too many"
    OLDER = "the name is another version's for this model type, and loading translates it"
    STRIPPED = "the base-model prefix is removed on loading"
    ADDED = "the base-model prefix is added on loading"
    TIED = "stored under the name of a tensor that is tied to it"


class Fate(IntFlag):
    """The outcome of matching a stored or an expected tensor; outcomes are combined with `|`.

    A module's row has the combined fates of all tensors below its name.
    """

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


# The replacement in a rename rule that all classes have -> the step of that rule.
_STEPS = {
    "LayerNorm.weight": Step.LEGACY,
    "LayerNorm.bias": Step.LEGACY,
    ".parametrizations.weight.original0": Step.NORM,
    ".parametrizations.weight.original1": Step.NORM,
    "model.language_model": Step.DOUBLED,
}

_NAME, _SHAPE = (itemgetter(StoredTensor._fields.index(field)) for field in ("name", "shape"))
_NO_SHAPE = (-1,)  # unequal to every shape and to None, which means an unknown shape


class Match(NamedTuple):
    """A stored tensor, the expected tensor that it matches, and the changes of its name."""

    stored: StoredTensor
    expected: ExpectedTensor
    steps: tuple[Step, ...]


class Matching(Struct, frozen=True, kw_only=True):
    """The stored tensors, each in exactly one of plain, hits, copies or unmatched."""

    plain: Mapping[str, StoredTensor]  # by expected name: as expected in name, shape and role
    hits: tuple[Match, ...]  # match an expected tensor, but with another name, shape or role
    copies: tuple[Match, ...]  # match an expected tensor that another stored tensor matches
    unmatched: tuple["Candidate", ...]  # match no expected tensor
    parameters: int  # the number of expected parameters
    shift: Step | None  # STRIPPED or ADDED, if most names differ by the base model's prefix


class Candidate(NamedTuple):
    """A stored tensor, or a tensor packed in it, and the name under which loading looks it up."""

    tensor: StoredTensor
    name: str


class Place(NamedTuple):
    """The name under which loading looks for a stored tensor, and the expected tensor there."""

    name: str  # name in memory, before conversions
    expected: ExpectedTensor | None
    steps: tuple[Step, ...]  # the changes from the stored name to the expected name


class Places(Struct, frozen=True):
    """A class's tensors by their names in memory."""

    names: Names  # names after the class's own renames
    prefix: str
    loading: Loading
    _known: dict[str, Place] = field(default_factory=dict)  # the places that were asked for

    def of(self, stored: Collection[str]) -> list[Place]:
        """Return each name's place: the name is renamed, then the prefix is added or removed.

        If the class has no tensor under the new name, but has one under the stored name, the stored
        name is used.
        """
        if new := [name for name in stored if name not in self._known]:
            self._known.update(zip(new, self._of(new), strict=True))
        return [self._known[name] for name in stored]

    def _of(self, stored: Collection[str]) -> list[Place]:
        own = self.loading.renamed(stored)
        older = self.loading.renamed_by_legacy(own)
        names = [older[name].name if name in older else name for name in own]
        forms = forms_with_prefix(dict.fromkeys(chain(stored, names)), self.prefix)
        tensors = self._tensors_under(forms)
        lookups = [_look_up(name, forms[name], tensors) for name in names]
        unconverted = self._unconverted(names, lookups)
        places: list[Place] = []
        for original, renamed, name, place in zip(stored, own, names, lookups, strict=True):
            steps = _steps(older[renamed]) if renamed in older else ()
            if name in unconverted:
                places.append(Place(name, None, steps))
            elif place.expected is None and name != original and original in tensors:
                unrenamed = _look_up(original, forms[original], tensors)
                places.append(self._with_steps(original, unrenamed, ()))
            else:
                places.append(self._with_steps(original, place, steps))
        return places

    def _unconverted(self, names: Iterable[str], lookups: Iterable[Place]) -> set[str]:
        """Return the names to which a conversion applies only with, or only without, the prefix.

        No expected tensor fits such a name.
        """
        if not self.loading.converters:
            return set()
        pairs = zip(names, lookups, strict=True)
        shifted = {name: place.name for name, place in pairs if place.steps}
        bare = frozenset(self.loading.conversions(shifted))
        prefixed = frozenset(self.loading.conversions(shifted.values()))
        return {name for name, other in shifted.items() if (name in bare) != (other in prefixed)}

    def _with_steps(self, stored: str, place: Place, steps: tuple[Step, ...]) -> Place:
        """Return the place with the steps of the renames before the shift of the prefix."""
        expected = place.expected
        if expected is not None and not steps:
            steps = (Step.OLDER,) if self._older(stored, expected.name, place.steps) else ()
        return place._replace(steps=(*steps, *place.steps)) if steps else place

    def _tensors_under(self, forms: Mapping[str, tuple[str, ...]]) -> Mapping[str, ExpectedTensor]:
        """Return the class's tensors with these names, looked up all at once."""
        if isinstance(self.names, Mapping):
            return self.names
        return self.names.tensors(frozenset(chain.from_iterable(forms.values())))

    def _older(self, stored: str, expected: str, shift: tuple[Step, ...]) -> bool:
        """Whether the stored and the expected name of a tensor differ in more than the prefix."""
        if not self.loading.renames or stored == expected:
            return False
        forms = forms_with_prefix((expected,), self.prefix)
        return not shift or stored not in forms[expected]


def _look_up(name: str, forms: tuple[str, ...], tensors: Mapping[str, ExpectedTensor]) -> Place:
    """Look up a name with and without the prefix; return the first form that the class has."""
    for form in forms:
        if expected := tensors.get(form):
            if form == name:
                return Place(form, expected, ())
            return Place(form, expected, (Step.ADDED if len(form) > len(name) else Step.STRIPPED,))
    return Place(name, None, ())


def places(expectation: Expectation, stored: Iterable[str] = ()) -> Places:
    """Return a lookup of stored names among the expected tensors.

    `stored` are all stored names, on which some loading rules depend.
    """
    return Places(expectation.renamed, expectation.prefix, expectation.loading.seeing(stored))


def shapes_of(expectation: Expectation) -> Callable[[str], tuple[int, ...] | None]:
    """Return a function from a name, as loading looks it up, to its expected shape or None."""

    def shape(name: str) -> tuple[int, ...] | None:
        (place,) = class_places().of((name,))
        return None if place.expected is None else place.expected.shape

    @cache
    def class_places() -> Places:
        return places(expectation)

    return shape


def _steps(renamed: ChangedName) -> tuple[Step, ...]:
    return tuple(_STEPS.get(rule.targets[0], Step.OLDER) for rule in renamed.rules)


def match(
    tensors: Sequence[StoredTensor],
    expectation: Expectation,
    *,
    indexed: Mapping[str, str],
    pieces: Collection[LogicalTensor] = (),
    where: Places | None = None,
) -> Matching:
    """Pair stored tensors with expected ones; `indexed` is the index's map from name to shard.

    `pieces` are tensors unpacked from packed ones; the latter are not among `tensors`. `where` are
    the places of the same names, if some were looked up before.
    """
    listed = expectation.listed
    plain, others = _plain(tensors, listed)
    candidates = [Candidate(tensor, tensor.name) for tensor in others]
    shapes = listed.shapes_of([piece.name for piece in pieces], _NO_SHAPE)
    for piece, shape in zip(pieces, shapes, strict=True):
        tensor, name = as_stored_tensor(piece), piece.name
        if name not in plain and shape == tensor.shape:
            plain[name] = tensor
        else:
            candidates.append(Candidate(tensor, name))
    matches, copies, unmatched = _Matches({}, (), ())
    if candidates:
        names = chain(plain, (candidate.name for candidate in candidates))
        where = where or places(expectation, names)
        matches, copies, unmatched = _matches(candidates, plain, where, indexed)
    return Matching(
        plain=plain,
        hits=tuple(matches.values()),
        copies=copies,
        unmatched=unmatched,
        parameters=listed.learned,
        shift=_shift(matches, plain, expectation.prefix),
    )


def _plain(
    tensors: Sequence[StoredTensor], listed: Listed
) -> tuple[dict[str, StoredTensor], Iterable[StoredTensor]]:
    """Return the tensors with an expected tensor's name and shape, by name, and all others.

    The former, called plain, are nearly all tensors of nearly every checkpoint. They are compared
    column by column, because a loop takes twice as long: 90,000 tensors take 45 ms.
    """
    names = list(map(_NAME, tensors))
    expected = listed.shapes_of(names, _NO_SHAPE)
    answers = list(map(eq, expected, map(_SHAPE, tensors)))
    plain = dict(compress(zip(names, tensors, strict=True), answers))
    if len(plain) == sum(answers):
        return plain, compress(tensors, map(not_, answers))
    first: dict[str, StoredTensor] = {}  # the first tensor of each name
    for tensor in compress(tensors, answers):
        first.setdefault(tensor.name, tensor)
    return first, [tensor for tensor in tensors if first.get(tensor.name) is not tensor]


class _Matches(NamedTuple):
    """The matches of candidates by expected name, second matches, and all other candidates."""

    first: dict[str, Match]
    copies: tuple[Match, ...]
    unmatched: tuple[Candidate, ...]


def _matches(
    candidates: Collection[Candidate],
    plain: dict[str, StoredTensor],
    places: Places,
    indexed: Mapping[str, str],
) -> _Matches:
    """Match the candidates, which differ from expected tensors in name or shape.

    Two candidates for one expected tensor are rivals; one of them becomes a copy. A plain tensor
    with a rival is moved from `plain` to the matches.
    """
    matches: dict[str, Match] = {}
    copies: list[Match] = []
    unmatched: list[Candidate] = []
    candidate_places = places.of([candidate.name for candidate in candidates])
    for candidate, (_, expected, steps) in zip(candidates, candidate_places, strict=True):
        if expected is None:
            unmatched.append(candidate)
            continue
        hit, name = Match(candidate.tensor, expected, steps), expected.name
        if name in plain:
            matches[name] = Match(plain.pop(name), expected, ())
        rival = matches.get(name)
        if rival is None:
            matches[name] = hit
        else:
            matches[name], copy = sorted((rival, hit), key=_precedence(indexed))
            copies.append(copy)
    return _Matches(matches, tuple(copies), tuple(unmatched))


def _precedence(indexed: Mapping[str, str]) -> Callable[[Match], tuple[object, ...]]:
    """Return the sort key of rivals for one parameter; the first of them is matched.

    Loading takes the first in natural order of names; for a name in two shards, the index decides.
    """

    def key(hit: Match) -> tuple[object, ...]:
        stored = hit.stored
        return (natural_key(stored.name), indexed.get(stored.name) != stored.file, stored.file)

    return key


def _shift(
    matches: Mapping[str, Match], plain: Mapping[str, StoredTensor], prefix: str
) -> Step | None:
    """Return STRIPPED or ADDED if most names of the base model have this shift, else None."""
    steps = [hit.steps[-1] if hit.steps else None for hit in matches.values()]
    counts = {step: steps.count(step) for step in (Step.STRIPPED, Step.ADDED)}
    if not any(counts.values()):
        return None
    below = f"{prefix}."
    unshifted = [name for name, hit in matches.items() if not hit.steps] + list(plain)
    direct = sum(name.startswith(below) for name in unshifted)
    step = max(counts, key=counts.__getitem__)
    return step if counts[step] > direct else None
