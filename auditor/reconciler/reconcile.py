"""The reconciliation: each stored and each expected tensor gets a fate, and fates give findings.

A fate is the outcome of matching the tensor, such as missing or unexpected.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading
from auditor.analytic.tree_expectation import Sibling
from auditor.analytic.unread import unread_names
from auditor.findings import (
    BadQuantization,
    Duplicate,
    Finding,
    MatchedPair,
    Mismatched,
    Missing,
    NewlyInitialized,
    OfUncounted,
    QuantizationData,
    Renamed,
    StoredBuffer,
    TiedWeight,
    by_name,
)
from auditor.layouts.packing import (
    PLAIN,
    UNPACKED,
    HiddenContent,
    LogicalTensor,
    ReadAndHidden,
    Unpacked,
)
from auditor.messages import shape_text
from auditor.names.parts import parent
from auditor.reconciler.contents import Contents, Unread
from auditor.reconciler.matching import (
    Candidate,
    Fate,
    Match,
    Matching,
    Places,
    Step,
    match,
    places,
)
from auditor.reconciler.unexpected import (
    BUFFERS,
    UnexpectedTensor,
    identify,
    read_by_no_class,
    unexpected_findings,
)
from auditor.tensors import DTYPE_BITS, StoredTensor, natural_key, naturally_sorted
from auditor.walker import counted_once

_DIMENSIONS = 8  # dimensions of a shape in a reason; models have at most five
_ELEMENTS = itemgetter(StoredTensor._fields.index("elements"))
_NOT_PACKED = ReadAndHidden(PLAIN, MappingProxyType({}))
_Item = tuple[StoredTensor, int, int]  # the fields of walker.Counted


class FamilyExpectations(Struct, frozen=True, kw_only=True):
    """The expectations of the target's family of classes, for one config."""

    declared: Expectation  # expectation of the class that the config declares
    siblings: Callable[[], tuple[Sibling, ...]]  # returns every class of the family
    unused_modules: tuple[str, ...] = ()  # modules of the target that its loader does not use


class Absent(NamedTuple):
    """An expected tensor that no stored one matches, and its fate."""

    tensor: ExpectedTensor
    fate: int


class NameWithoutHeader(NamedTuple):
    """The facts about a stored name in a file whose header was not read."""

    elements: int | None  # of its expected tensors, summed up; None if it is unexpected
    fate: int
    packed: bool  # whether its bytes do not follow from its elements


class Reconciled(Struct, frozen=True, kw_only=True):
    """The reconciled tensors; each stored tensor is in `counted` once (law 2 of tests/laws).

    Each expected tensor is in one of `plain`, `answered` and `absent`, once, except optional ones
    that are not stored, extra ones, and tied ones whose stored copy is a duplicate.
    """

    counted: tuple[_Item, ...]
    plain: Mapping[str, StoredTensor]  # by expected name: as expected in name, shape and role
    answered: tuple[Match, ...]  # matched, but with another name, shape or role
    copies: tuple[Match, ...]  # stored again: under another name, or in another shard
    unexpected: tuple[UnexpectedTensor, ...]
    absent: tuple[Absent, ...]
    findings: tuple[Finding, ...]
    shift: Step | None
    packed: Mapping[tuple[str, str], str]  # (name, file) of a packed tensor -> dtype inside
    scaled: tuple[StoredTensor, ...]  # weights of one tensor each that only need scales
    # The names that an index places in files that were not read, sorted.
    without_header: tuple[tuple[str, NameWithoutHeader], ...]
    moved: bool  # whether some unpacked tensors are in another module than their packed tensor


def reconcile(
    contents: Contents,
    expectation: Expectation,
    family: FamilyExpectations,
    packing: ReadAndHidden = _NOT_PACKED,
    where: Places | None = None,
) -> Reconciled:
    """Match stored with expected tensors, and report every difference.

    `where` are the places of the stored names, if some were looked up before.
    """
    loading = expectation.loading
    # Separate the tensors of the model from packed tensors and their quantization data.
    stored = _separated(contents.tensors, packing.read)
    # Match stored names with expected ones, by the rules by which loading renames.
    indexed = contents.index.weight_map if contents.index else {}
    matching = match(stored.single, expectation, indexed=indexed, pieces=stored.pieces, where=where)
    # Make a stored tied tensor a copy of its source, or use it in place of its source.
    settled = _settle_ties(matching)
    # Give each stored tensor its fate.
    answered = tuple(_answers(settled.hits))
    copies = tuple(_copies(settled, contents.shared))
    not_stored = _not_stored(expectation, matching, settled)
    remnant = is_remnant(len(not_stored), len(contents.tensors)) and not contents.unread
    unexpected = (
        *identify(matching.unmatched, loading, tuple if remnant else family.siblings),
        *read_by_no_class(settled.extras, loading),
    )
    # Give each expected tensor that is not stored its fate.
    hidden = _hidden_names(contents.unread, expectation, packing.behind)
    unread_file = _unread_file(contents.unread, hidden)
    absent = tuple(_absent(not_stored, expectation, family, unread_file))
    # Report each fate, except that of a tensor that is as expected.
    findings = (
        *_unreadable(contents.unread, absent, unread_file),
        *_missing(absent, expectation.target, family.unused_modules),
        *_mismatched(answered, contents.tensors),
        *_duplicates(copies),
        *_renamed(settled.hits),
        *_tied(absent),
        *_buffers(answered, loading),
        *unexpected_findings(unexpected, expectation.target),
        *_packing(packing.read),
    )
    # Count each stored tensor once, with all parameters that it contains.
    plain = matching.plain
    parameters = map(_ELEMENTS, plain.values())
    counted = (
        *zip(plain.values(), parameters, repeat(Fate.EQUAL.value)),
        *((item.hit.stored, item.parameters, item.fate) for item in answered),
        *((item.hit.stored, 0, item.fate) for item in copies),
        *((item.tensor, item.parameters, item.fate) for item in unexpected),
    )
    return Reconciled(
        counted=counted_once(tuple(_as_stored(counted, stored)), contents.shared),
        plain=plain,
        answered=settled.hits,
        copies=settled.copies,
        unexpected=unexpected,
        absent=absent,
        findings=findings,
        shift=matching.shift,
        packed={
            (piece.stored.name, piece.stored.file): piece.dtype
            for piece in stored.pieces
            if piece.dtype not in UNPACKED
        },
        scaled=stored.scaled,
        without_header=tuple(_without_header(hidden, loading, family)),
        moved=any(parent(piece.name) != parent(piece.stored.name) for piece in stored.pieces),
    )


_MANY_MISSING, _MISSING_FOR_EACH = 20_000, 100


def is_remnant(missing: int, stored: int) -> bool:
    """Whether a large model lacks nearly all its tensors, so that the files are another model's.

    Names, values and sibling classes are not tried then: 74,000 missing tensors take five seconds.
    """
    return missing > _MANY_MISSING and missing > _MISSING_FOR_EACH * stored


# --- stored tensors of a packed checkpoint, by their use ---------------------------------------


class _Stored(NamedTuple):
    """The stored tensors, grouped by what they contain."""

    single: Sequence[StoredTensor]  # tensors that are each one tensor of the model
    scaled: tuple[StoredTensor, ...]  # those of `single` that are quantized and need scales
    pieces: tuple[LogicalTensor, ...]  # tensors of the model unpacked from other tensors
    quantization_data: tuple[StoredTensor, ...]


def _separated(tensors: Sequence[StoredTensor], unpacked: Unpacked) -> _Stored:
    """Group stored tensors by their contents; an 8-bit weight that only needs scales is `single`.

    Tensors unpacked from one stored tensor are sorted by their names, so that a later sort by
    stored names does not depend on the order of the files.
    """
    if unpacked is PLAIN:
        return _Stored(tensors, (), (), ())
    pieces = unpacked.pieces
    data = tuple(chain.from_iterable(notes.tensors for notes in unpacked.quantization_data))
    holders = {id(piece.stored) for piece in pieces}
    if len(holders) < len(pieces):
        pieces = tuple(naturally_sorted(pieces, attrgetter("name")))
    packed_ids = {*holders, *map(id, data)}  # layouts return the very objects that they received
    single = [tensor for tensor in tensors if id(tensor) not in packed_ids]
    scaled = tuple(tensor for tensor in unpacked.unchanged if tensor.dtype not in UNPACKED)
    return _Stored(single, scaled, pieces, data)


def _as_stored(counted: Iterable[_Item], stored: _Stored) -> Iterable[_Item]:
    """Yield each stored tensor once, with the parameters of all tensors that it contains."""
    data = zip(stored.quantization_data, repeat(0), repeat(Fate.QUANTIZATION_DATA.value))
    return chain(_added_up(counted, stored.pieces) if stored.pieces else counted, data)


def _added_up(counted: Iterable[_Item], pieces: Iterable[LogicalTensor]) -> Iterator[_Item]:
    holders = {(piece.stored.name, piece.stored.file): piece.stored for piece in pieces}
    sums: dict[tuple[str, str], _Item] = {}
    for item in counted:
        tensor, parameters, fate = item
        key = (tensor.name, tensor.file)
        if key in holders:
            _, count_before, fates = sums.get(key, (tensor, 0, 0))
            sums[key] = (holders[key], count_before + parameters, fates | fate)
        else:
            yield item
    yield from sums.values()


def _packing(unpacked: Unpacked) -> Iterator[OfUncounted]:
    """Yield the quantization data, in the layout's order, and the layout's faults as findings."""
    for notes in unpacked.quantization_data:  # DeepSeek-V3 has 46,122, which `fold` sorts
        yield QuantizationData(tensors=tuple(notes.tensors), reason=notes.reason)
    for fault in unpacked.faults:
        yield BadQuantization(tensors=by_name(fault.tensors), reason=fault.reason)


# --- ties and copies ---------------------------------------------------------------------------


class _Settled(NamedTuple):
    """The matched stored tensors, after tied tensors were settled."""

    plain: Mapping[str, StoredTensor]  # see Matching
    hits: tuple[Match, ...]  # matches in which the expected tensor is stored only once
    extras: tuple[Match, ...]  # matches with tensors that no class reads
    copies: tuple[Match, ...]


def _settle_ties(matching: Matching) -> _Settled:
    """Make a stored tied tensor a copy of its source.

    If the source is not stored, the tied tensor replaces it, as in loading.
    """
    plain, hits = matching.plain, {hit.expected.name: hit for hit in matching.hits}
    copies = list(matching.copies)
    tied = [hit for hit in matching.hits if hit.expected.role is Role.TIED]
    for hit in tied:
        del hits[hit.expected.name]
    for hit in naturally_sorted(tied, attrgetter("stored.name")):
        source = hit.expected.tied_to or ""
        if source in hits or source in plain:
            copies.append(hit)
        else:
            replaced = hit.expected._replace(name=source, role=Role.PARAMETER, tied_to=None)
            hits[source] = Match(hit.stored, replaced, (*hit.steps, Step.TIED))
    extras = tuple(hit for hit in hits.values() if hit.expected.role is Role.EXTRA)
    used = tuple(hit for hit in hits.values() if hit.expected.role is not Role.EXTRA)
    return _Settled(plain, used, extras, tuple(copies))


class _Copy(NamedTuple):
    """A stored tensor whose parameter another stored tensor already provides."""

    hit: Match
    original: StoredTensor  # the tensor that is counted
    fate: int  # TIED if tied by the config and identical in the file


def _copies(settled: _Settled, shared: Mapping[str, str]) -> Iterator[_Copy]:
    """Yield each copy with its original; `shared` is Contents.shared."""
    hits = (*settled.hits, *settled.extras) if settled.copies else ()
    others = {hit.expected.name: hit.stored for hit in hits}
    for hit in settled.copies:
        tied = hit.expected.role is Role.TIED
        source = (hit.expected.tied_to or "") if tied else hit.expected.name
        original = settled.plain.get(source) or others[source]
        first, second = (shared.get(name, name) for name in (hit.stored.name, original.name))
        is_same_bytes = first == second and hit.stored.file == original.file
        is_tied = tied and (is_same_bytes or _is_of_training(hit.stored, original))
        yield _Copy(hit, original, (Fate.TIED if is_tied else Fate.DUPLICATE).value)


def _is_of_training(first: StoredTensor, second: StoredTensor) -> bool:
    """Return whether a training saved both names of one tensor, in parts outside of the file."""
    has_parts = first.span is None and first.elements is not None
    return has_parts and first.shape == second.shape


def _duplicates(copies: Iterable[_Copy]) -> Iterator[Finding]:
    """Yield findings: identical tied tensors are reported as tied, other copies as duplicates."""
    groups: dict[str, list[_Copy]] = {}
    for copy in copies:
        groups.setdefault(_reason_of_copy(copy), []).append(copy)
    for reason, group in groups.items():
        group.sort(key=lambda copy: (natural_key(copy.hit.stored.name), copy.hit.stored.file))
        originals = tuple(copy.original.name for copy in group)
        if group[0].fate == Fate.TIED:
            tied = (copy.hit.expected._replace(name=copy.hit.stored.name) for copy in group)
            yield TiedWeight(tensors=tuple(tied), tied_to=originals, reason=reason)
        else:
            tensors = tuple(copy.hit.stored for copy in group)
            yield Duplicate(tensors=tensors, of=originals, reason=reason)


def _reason_of_copy(copy: _Copy) -> str:
    if copy.fate == Fate.TIED and _is_of_training(copy.hit.stored, copy.original):
        return "the config ties it to another tensor, and a training saves both names"
    if copy.fate == Fate.TIED:
        return "stored as the very same bytes as the tensor that the config ties it to"
    if copy.hit.expected.role is Role.TIED:
        return (
            "the config ties it to another tensor, yet the file stores both; "
            "only their values could show whether they are the same"
        )
    if copy.original.name == copy.hit.stored.name:
        return f"the same name is stored in {copy.original.file} as well"
    return "another stored name loads into the same parameter; only one is read"


# --- tensors of files that could not be read ---------------------------------------------------


class _Hidden(NamedTuple):
    """A tensor that an index places in an unread file: its content as far as known.

    `expected` are the expected tensors that it stands for.
    """

    content: HiddenContent
    expected: tuple[ExpectedTensor, ...]


def _hidden_names(
    unread: tuple[Unread, ...], expectation: Expectation, behind: Mapping[str, HiddenContent]
) -> Mapping[str, _Hidden]:
    """Map the sorted names in unread files to their contents; `behind` covers packed tensors."""
    names = sorted(frozenset(chain.from_iterable(file.names or () for file in unread)))
    if not names:
        return {}
    contents = [behind.get(name, HiddenContent((name,), packed=False)) for name in names]
    pieces = dict.fromkeys(chain.from_iterable(content.tensors for content in contents))
    pairs = zip(pieces, places(expectation).of(pieces), strict=True)
    expected = {piece: place.expected for piece, place in pairs if place.expected is not None}
    return {
        name: _Hidden(content, tuple(expected[one] for one in content.tensors if one in expected))
        for name, content in zip(names, contents, strict=True)
    }


def _unread_file(
    unread: tuple[Unread, ...], hidden: Mapping[str, _Hidden]
) -> Callable[[str], str | None]:
    """Return a function from an expected name to the unread file that may contain it, or None."""
    file_by_name: dict[str, str] = {}
    for file in unread:
        for name in file.names or ():
            for tensor in hidden[name].expected:
                file_by_name.setdefault(tensor.name, file.file)
    anywhere = next((file.file for file in unread if file.names is None), None)
    return lambda name: file_by_name.get(name, anywhere)


def _without_header(
    hidden: Mapping[str, _Hidden], loading: Loading, family: FamilyExpectations
) -> Iterator[tuple[str, NameWithoutHeader]]:
    """Yield the facts about each name in an unread file, unexpected names last."""
    unknown: list[Candidate] = []
    for name, (content, expected) in hidden.items():
        if expected:
            fate = Fate.EQUAL if any(tensor.role.learned for tensor in expected) else Fate.BUFFER
            elements = sum(tensor.elements for tensor in expected)
            yield name, NameWithoutHeader(elements, fate.value, packed=content.packed)
        elif content.packed:
            fate = Fate.UNEXPECTED if content.tensors else Fate.QUANTIZATION_DATA
            yield name, NameWithoutHeader(None, fate.value, packed=True)
        else:
            unknown.append(Candidate(StoredTensor(name, None, None, None, "", None), name))
    for item in identify(unknown, loading, family.siblings):
        yield item.tensor.name, NameWithoutHeader(item.implied, item.fate, packed=False)


def _unreadable(
    unread: tuple[Unread, ...], absent: Iterable[Absent], unread_file: Callable[[str], str | None]
) -> Iterator[Finding]:
    """Yield a finding for each unread file, with the expected tensors that it may contain."""
    hidden: dict[str | None, list[ExpectedTensor]] = {}
    for tensor, fate in absent if unread else ():
        if fate == Fate.UNREADABLE:
            hidden.setdefault(unread_file(tensor.name), []).append(tensor)
    for file in unread:
        tensors = tuple(hidden.get(file.file, ()))
        yield file.finding(file=file.file, reason=file.reason, hidden=tensors)


# --- expected tensors that are not stored ------------------------------------------------------


def _not_stored(
    expectation: Expectation, matching: Matching, settled: _Settled
) -> list[ExpectedTensor]:
    """Return the expected tensors that no stored tensor matches, without optional ones."""
    complete = len(matching.plain) == matching.parameters  # then all parameters are stored
    tensors = expectation.listed.others if complete else expectation.tensors
    hits = (*settled.hits, *settled.extras, *settled.copies)
    matched = (
        matching.plain.keys() | {hit.expected.name for hit in hits} if hits else matching.plain
    )
    return [tensor for tensor in tensors if tensor.name not in matched and not tensor.role.optional]


def _absent(
    not_stored: list[ExpectedTensor],
    expectation: Expectation,
    family: FamilyExpectations,
    unread_file: Callable[[str], str | None],
) -> Iterator[Absent]:
    """Yield each expected tensor that is not stored, with its fate."""
    needed = _needed(not_stored, expectation, family.declared)
    for tensor in not_stored:
        if tensor.role is Role.TIED:
            fate = Fate.TIED
        elif unread_file(tensor.name) is not None:
            fate = Fate.UNREADABLE
        elif tensor.name not in needed or _reason_not_needed(
            tensor, expectation.target, family.unused_modules
        ):
            fate = Fate.NEWLY_INITIALIZED
        else:
            fate = Fate.MISSING
        yield Absent(tensor, fate.value)


def _needed(
    not_stored: list[ExpectedTensor], expectation: Expectation, declared: Expectation
) -> frozenset[str]:
    """Return the target's names that the declared class needs; all, if it is the target."""
    if declared is expectation or all(tensor.role is Role.TIED for tensor in not_stored):
        return frozenset(tensor.name for tensor in not_stored)
    declared_places = places(expectation).of([tensor.name for tensor in declared.needed])
    return frozenset(place.expected.name for place in declared_places if place.expected is not None)


def _reason_not_needed(
    tensor: ExpectedTensor, target: str, unused_modules: tuple[str, ...]
) -> str | None:
    """Return why the model works without a tensor of its class; None if the tensor is needed."""
    # torch 0.4 and some converters do not store the counters.
    if tensor.role is Role.BUFFER and tensor.name.endswith(".num_batches_tracked"):
        return "it counts the batches of a training, from 0 on, and no output depends on it"
    if any(tensor.name.startswith(f"{module}.") for module in unused_modules):
        return "its loader has no use for it: loading would initialize it afresh"
    if tensor.name in unread_names(target):
        return f"no forward pass of {target} reads it: loading would initialize it afresh"
    return None


def _missing(
    absent: Iterable[Absent], target: str, unused_modules: tuple[str, ...]
) -> Iterator[Finding]:
    missing = tuple(tensor for tensor, fate in absent if fate == Fate.MISSING)
    if missing:
        yield Missing(tensors=missing, reason="the declared class needs it and no file stores it")
    groups: dict[str, list[ExpectedTensor]] = {}
    for tensor, fate in absent:
        if fate == Fate.NEWLY_INITIALIZED:
            reason = _reason_not_needed(tensor, target, unused_modules)
            reason = reason or "only the target class uses it: loading would initialize it afresh"
            groups.setdefault(reason, []).append(tensor)
    for reason, tensors in groups.items():
        yield NewlyInitialized(tensors=tuple(tensors), reason=reason)


def _tied(absent: Iterable[Absent]) -> Iterator[Finding]:
    tied = tuple(tensor for tensor, fate in absent if fate == Fate.TIED)
    if tied:
        yield TiedWeight(
            tensors=tied,
            tied_to=tuple(tensor.tied_to or "" for tensor in tied),
            reason="not stored, and need not be: it shares the values of another tensor",
        )


# --- stored tensors that match, but not in name, shape and role --------------------------------


class _Answer(NamedTuple):
    """A match, the number of parameters that it stores, and its fate."""

    hit: Match
    parameters: int
    fate: int


def _answers(hits: Iterable[Match]) -> Iterator[_Answer]:
    """Yield each match with its fate; an optional tensor may have any shape."""
    for hit in hits:
        stored, expected, _ = hit
        learned, is_equal = expected.role.learned, stored.shape == expected.shape
        if learned and is_equal:
            yield _Answer(hit, expected.elements, Fate.EQUAL.value)
        elif not (is_equal or stored.shape is None or expected.role.optional):
            yield _Answer(hit, (stored.elements or 0) if learned else 0, Fate.MISMATCHED.value)
        else:
            yield _Answer(hit, 0, (Fate.UNCHECKED if learned else Fate.BUFFER).value)


def _mismatched(answers: Iterable[_Answer], tensors: Iterable[StoredTensor]) -> Iterator[Finding]:
    """Yield findings about wrong shapes; `tensors` are the tensors as the files store them."""
    hits = [hit for hit, _, fate in answers if fate == Fate.MISMATCHED]
    shapes = {tensor.name: tensor.shape for tensor in tensors} if hits else {}
    groups: dict[tuple[str, object], list[Match]] = {}
    for hit in hits:
        name, dtype, shape = hit.stored.name, hit.stored.dtype, _text(hit.stored.shape)
        if dtype not in DTYPE_BITS:
            observed = f"unpacked as {shape} of {dtype}"
        elif shapes.get(name, hit.stored.shape) == hit.stored.shape:
            observed = f"stored as {shape}"
        else:
            observed = f"stored with a part of shape {shape}"
        groups.setdefault((observed, hit.expected.shape), []).append(hit)
    for (observed, expected), group in groups.items():
        reason = f"{observed}, expected {_text(expected)}"
        yield Mismatched(pairs=_pairs(group), reason=reason)


def _text(shape: object) -> str:
    """Return a shape as text: `(768, 3072)`, `one number`; at most its first eight dimensions."""
    if isinstance(shape, tuple) and len(shape) > _DIMENSIONS:
        return f"({', '.join(map(str, shape[:_DIMENSIONS]))}, ...: {len(shape):,} dimensions)"
    return shape_text(shape)


def _renamed(hits: Iterable[Match]) -> Iterator[Finding]:
    groups: dict[tuple[Step, ...], list[Match]] = {}
    for hit in hits:
        if hit.steps and hit.expected.role.learned:
            groups.setdefault(hit.steps, []).append(hit)
    for steps, group in groups.items():
        yield Renamed(pairs=_pairs(group), reason="; ".join(steps))


def _buffers(answers: Iterable[_Answer], loading: Loading) -> Iterator[Finding]:
    """Yield findings about stored buffers, by their role and by whether loading reports them."""
    buffers = [hit for hit, _, fate in answers if fate == Fate.BUFFER]
    groups: dict[tuple[Role, bool], list[StoredTensor]] = {}
    unknown_names = loading.unknown([hit.stored.name for hit in buffers]) if buffers else ()
    for hit, unknown in zip(buffers, unknown_names, strict=True):
        role = hit.expected.role
        is_loaded = role is Role.BUFFER or loading.takes(hit.expected.name)
        groups.setdefault((role, is_loaded or unknown.silent), []).append(hit.stored)
    for role, silent in sorted(groups, reverse=True):
        tensors = by_name(groups[role, silent])
        yield StoredBuffer(tensors=tensors, silent=silent, reason=BUFFERS[role])


def _pairs(hits: list[Match]) -> tuple[MatchedPair, ...]:
    """Return the matches as pairs sorted by both names; one packed tensor may be in several."""
    ordered = naturally_sorted(hits, attrgetter("expected.name"))
    ordered = naturally_sorted(ordered, attrgetter("stored.name"))
    return tuple(MatchedPair(stored=hit.stored, expected=hit.expected) for hit in ordered)
