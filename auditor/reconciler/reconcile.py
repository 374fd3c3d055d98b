"""The reconciliation: each stored and each expected tensor gets a fate, and fates give findings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.catalogue import Sibling
from auditor.analytic.loading import Loading
from auditor.layouts.packing import PLAIN, HiddenContent, Unpacked
from auditor.reconciler.counting import (
    apart,
    copied_of,
    counted_as_stored,
    counted_once,
    duplicates,
    packed_dtypes,
    packing_findings,
)
from auditor.reconciler.findings import (
    Finding,
    MatchedPair,
    Mismatched,
    Missing,
    NewlyInitialized,
    Renamed,
    StoredBuffer,
    TiedWeight,
    by_name,
)
from auditor.reconciler.matching import Candidate, Fate, Hit, Step, match, places
from auditor.reconciler.unexpected import (
    BUFFERS,
    UnexpectedTensor,
    identify,
    read_by_no_class,
    unexpected_findings,
)
from auditor.reconciler.unread_files import (
    NameWithoutHeader,
    Unread,
    file_that_may_hold,
    names_without_header,
)
from auditor.tensors import DTYPE_BITS, StoredTensor, naturally_sorted
from auditor.walker import Counted, parent


class FamilyExpectations(Struct, frozen=True, kw_only=True):
    """The expectations of the classes around the target, for one config."""

    declared: Expectation  # of the class that the config declares
    siblings: Callable[[], tuple[Sibling, ...]]  # every class of the family; on demand
    spares: tuple[str, ...] = ()  # modules of the target that its own loader does not use


_DIMENSIONS = 8  # of a shape in a reason; models have at most five
_ELEMENTS = itemgetter(StoredTensor._fields.index("elements"))


_UNSHARED: Mapping[str, str] = MappingProxyType({})
_NOTHING: Mapping[str, HiddenContent] = MappingProxyType({})


class Absent(NamedTuple):
    """An expected tensor that no stored one matches, and its Fate."""

    tensor: ExpectedTensor
    fate: int


class Reconciled(Struct, frozen=True, kw_only=True):
    """The reconciled tensors, each stored tensor once in `counted`: law 2.

    Each expected tensor is once in `plain`, `answered` or `absent`, except optional ones that are
    not stored, extra ones, and tied ones whose stored copy is a duplicate.
    """

    counted: tuple[tuple[StoredTensor, int, int], ...]  # the fields of walker.Counted
    plain: Mapping[str, StoredTensor]  # by expected name: equal in name, shape and role
    answered: tuple[Hit, ...]  # matched in another way
    copies: tuple[Hit, ...]  # stored again: under another name, or in another shard
    unexpected: tuple[UnexpectedTensor, ...]
    absent: tuple[Absent, ...]
    findings: tuple[Finding, ...]
    shift: Step | None
    packed: Mapping[tuple[str, str], str]  # (name, file) of a stored tensor -> dtype of its pieces
    scaled: tuple[StoredTensor, ...]  # weights that are packed only in that they need scales
    without_header: tuple[
        tuple[str, NameWithoutHeader], ...
    ]  # the names that an index places in files that were not read
    moved: bool  # whether some pieces belong to another module than the stored tensor's name


def reconcile(  # noqa: PLR0913 - what is stored, what is expected, and what is known of the files
    tensors: Sequence[StoredTensor],
    expectation: Expectation,
    family: FamilyExpectations,
    *,
    indexed: Mapping[str, str],
    unread: tuple[Unread, ...] = (),
    unpacked: Unpacked = PLAIN,
    behind: Mapping[str, HiddenContent] = _NOTHING,
    shared: Mapping[str, str] = _UNSHARED,
) -> Reconciled:
    """Account for every tensor; `indexed` is the index's own name -> shard.

    `unpacked` are the packed tensors and their contents, `behind` those of names in unread files,
    `shared` the tensors whose bytes are those of another tensor of their file.
    """
    alone = apart(tensors, unpacked)
    matching = match(alone.alone, expectation, indexed=indexed, pieces=alone.pieces)
    plain, loading = matching.plain, expectation.loading
    ties = _settle_ties(matching.hits, plain)
    copies = (*matching.copies, *ties.copies)
    answered = tuple(hit for hit in ties.answered if hit.expected.role is not Role.EXTRA)
    extras = [hit for hit in ties.answered if hit.expected.role is Role.EXTRA]
    named = {hit.expected.name for hit in (*ties.answered, *copies)}
    whole = len(plain) == matching.parameters  # no parameter is missing then
    wanted = expectation.listed.others if whole else expectation.tensors
    left = [one for one in wanted if one.name not in plain and one.name not in named]
    where = file_that_may_hold(unread, expectation, behind) if left else (lambda _name: None)
    absent, hidden = _judge_absent(left, expectation, family, unread, where)
    unknown = _identified(matching.unmatched, loading, family) if matching.unmatched else ()
    unexpected = (*unknown, *read_by_no_class(extras, loading))
    copied = copied_of(copies, ties.answered, plain, shared)
    fates = ((one.hit, Fate.TIED if one.same else Fate.DUPLICATE) for one in copied)
    findings = (
        *hidden,
        *_missing(absent, family.spares),
        *_mismatched(answered),
        *duplicates(copied),
        *_renamed(answered),
        *_tied(absent),
        *_buffers(answered, loading),
        *unexpected_findings(unexpected, expectation.target),
        *packing_findings(unpacked),
    )
    counted = (
        *zip(plain.values(), map(_ELEMENTS, plain.values()), repeat(Fate.EQUAL.value)),
        *_counted(answered),
        *(Counted(hit.stored, 0, fate.value) for hit, fate in fates),
        *(Counted(item.tensor, item.parameters, item.fate) for item in unexpected),
    )
    return Reconciled(
        counted=counted_once(tuple(counted_as_stored(counted, alone)), shared),
        plain=plain,
        answered=answered,
        copies=copies,
        unexpected=unexpected,
        absent=absent,
        findings=findings,
        shift=matching.shift,
        packed=packed_dtypes(alone),
        scaled=alone.scaled,
        without_header=tuple(names_without_header(unread, expectation, behind, family.siblings)),
        moved=any(parent(piece.name) != parent(piece.stored.name) for piece in alone.pieces),
    )


def _identified(
    unexpected: tuple[Candidate, ...], loading: Loading, family: FamilyExpectations
) -> tuple[UnexpectedTensor, ...]:
    """Identify unexpected tensors by the names that loading looks up; report the stored names."""
    asked = [
        tensor if tensor.name == name else tensor._replace(name=name) for tensor, name in unexpected
    ]
    found = identify(asked, loading, family.siblings)
    return tuple(
        item if item.tensor is tensor else item._replace(tensor=tensor)
        for item, (tensor, _) in zip(found, unexpected, strict=True)
    )


# --- ties -------------------------------------------------------------------------------------


class _Ties(NamedTuple):
    answered: tuple[Hit, ...]
    copies: tuple[Hit, ...]


def _settle_ties(hits: tuple[Hit, ...], plain: Mapping[str, StoredTensor]) -> _Ties:
    """Make a stored tied tensor a copy of its source.

    If the source is not stored, the tied tensor replaces it, as in loading.
    """
    tied = [hit for hit in hits if hit.expected.role is Role.TIED]
    if not tied:
        return _Ties(hits, ())
    answered = {hit.expected.name: hit for hit in hits if hit.expected.role is not Role.TIED}
    copies: list[Hit] = []
    for hit in naturally_sorted(tied, attrgetter("stored.name")):
        source = hit.expected.tied_to or ""
        if source in answered or source in plain:
            copies.append(hit)
        else:
            source_tensor = hit.expected._replace(name=source, role=Role.PARAMETER, tied_to=None)
            answered[source] = Hit(hit.stored, source_tensor, (*hit.steps, Step.TIED))
    return _Ties(tuple(answered.values()), tuple(copies))


# --- what is absent ---------------------------------------------------------------------------


def _judge_absent(
    left: list[ExpectedTensor],
    expectation: Expectation,
    family: FamilyExpectations,
    unread: tuple[Unread, ...],
    where: Callable[[str], str | None],
) -> tuple[tuple[Absent, ...], tuple[Finding, ...]]:
    """Return the fate of each unmatched tensor, and one finding for each unread file.

    `where` returns the unread file that may contain an expected name.
    """
    left = [tensor for tensor in left if not tensor.role.optional]  # some store some of these
    behind: dict[str, list[ExpectedTensor]] = {item.file: [] for item in unread}
    unshared = [tensor for tensor in left if tensor.role is not Role.TIED]
    needed = _needed(unshared, expectation, family.declared) if unshared else frozenset()
    absent: list[Absent] = []
    for tensor in left:
        file = where(tensor.name)
        if tensor.role is Role.TIED:
            fate = Fate.TIED
        elif file is not None:
            behind[file].append(tensor)
            fate = Fate.UNREADABLE
        else:
            spare = _is_below(tensor.name, family.spares) or _counts_batches(tensor)
            lacking = tensor.name in needed and not spare
            fate = Fate.MISSING if lacking else Fate.NEWLY_INITIALIZED
        absent.append(Absent(tensor, fate.value))
    hidden = tuple(
        item.finding(file=item.file, reason=item.reason, hidden=tuple(behind[item.file]))
        for item in unread
    )
    return tuple(absent), hidden


def _needed(
    left: list[ExpectedTensor], expectation: Expectation, declared: Expectation
) -> frozenset[str]:
    """The target's names, at least those in `left`, that the declared class has too."""
    if declared is expectation:
        return frozenset(tensor.name for tensor in left)
    found = places(expectation).of([tensor.name for tensor in declared.needed])
    return frozenset(place.expected.name for place in found if place.expected is not None)


def _missing(absent: tuple[Absent, ...], spares: tuple[str, ...]) -> Iterator[Finding]:
    missing = tuple(item.tensor for item in absent if item.fate == Fate.MISSING)
    new = [item.tensor for item in absent if item.fate == Fate.NEWLY_INITIALIZED]
    counters = tuple(filter(_counts_batches, new))
    new = [tensor for tensor in new if not _counts_batches(tensor)]
    spared = tuple(tensor for tensor in new if _is_below(tensor.name, spares))
    others = tuple(tensor for tensor in new if not _is_below(tensor.name, spares))
    if missing:
        yield Missing(tensors=missing, reason="the declared class needs it and no file stores it")
    if others:
        reason = "only the target class uses it: loading would initialize it afresh"
        yield NewlyInitialized(tensors=others, reason=reason)
    if spared:
        reason = "its loader has no use for it: loading would initialize it afresh"
        yield NewlyInitialized(tensors=spared, reason=reason)
    if counters:
        reason = "it counts the batches of a training, from 0 on, and no output depends on it"
        yield NewlyInitialized(tensors=counters, reason=reason)


def _counts_batches(tensor: ExpectedTensor) -> bool:
    """Whether a tensor counts batches: torch 0.4 and some converters do not store these."""
    return tensor.role is Role.BUFFER and tensor.name.endswith(".num_batches_tracked")


def _is_below(name: str, modules: tuple[str, ...]) -> bool:
    return any(name.startswith(f"{module}.") for module in modules)


def _tied(absent: tuple[Absent, ...]) -> Iterator[Finding]:
    tied = tuple(item.tensor for item in absent if item.fate == Fate.TIED)
    if tied:
        yield TiedWeight(
            tensors=tied,
            to=tuple(tensor.tied_to or "" for tensor in tied),
            reason="not stored, and need not be: it shares the values of another tensor",
        )


# --- what is answered -------------------------------------------------------------------------


def _counted(answered: tuple[Hit, ...]) -> Iterator[Counted]:
    equal, unchecked = Fate.EQUAL.value, Fate.UNCHECKED.value
    for hit in answered:
        stored, expected, _ = hit
        if stored.shape == expected.shape and expected.role.learned:
            yield Counted(stored, expected.elements, equal)
        elif _misses(hit):
            parameters = (stored.elements or 0) if expected.role.learned else 0
            yield Counted(stored, parameters, Fate.MISMATCHED.value)
        elif not expected.role.learned:
            yield Counted(stored, 0, Fate.BUFFER.value)
        else:
            yield Counted(stored, 0, unchecked)


def _misses(hit: Hit) -> bool:
    """Whether the stored shape is not the expected one, except for a legacy buffer."""
    stored, expected, _ = hit
    return stored.shape not in {None, expected.shape} and not expected.role.optional


def _mismatched(answered: tuple[Hit, ...]) -> Iterator[Finding]:
    groups: dict[tuple[object, object, str | None], list[Hit]] = {}
    for hit in filter(_misses, answered):
        dtype = None if hit.stored.dtype in DTYPE_BITS else hit.stored.dtype  # if packed
        groups.setdefault((hit.stored.shape, hit.expected.shape, dtype), []).append(hit)
    for (stored, expected, dtype), hits in groups.items():
        inside = f" of {dtype}" if dtype else ""
        reason = (
            f"stored as {shape_text(stored)}{inside}, the config implies {shape_text(expected)}"
        )
        yield Mismatched(pairs=_pairs(hits), reason=reason)


def shape_text(shape: object) -> str:
    """A shape as text: `(768, 3072)`, `(768,)`, `()`; at most its first eight dimensions."""
    if isinstance(shape, tuple) and len(shape) > _DIMENSIONS:
        return f"({', '.join(map(str, shape[:_DIMENSIONS]))}, ...: {len(shape):,} dimensions)"
    return str(shape)


def _renamed(answered: tuple[Hit, ...]) -> Iterator[Finding]:
    groups: dict[tuple[Step, ...], list[Hit]] = {}
    for hit in answered:
        if hit.steps and hit.expected.role.learned:
            groups.setdefault(hit.steps, []).append(hit)
    for steps, hits in groups.items():
        yield Renamed(pairs=_pairs(hits), reason="; ".join(steps))


def _buffers(answered: tuple[Hit, ...], loading: Loading) -> Iterator[Finding]:
    """Yield stored buffers; loading is silent about obsolete ones only if a rule says so."""
    buffers = [hit for hit in answered if hit.expected.role in BUFFERS and not _misses(hit)]
    groups: dict[tuple[Role, bool], list[StoredTensor]] = {}
    said = loading.unknown([hit.stored.name for hit in buffers])
    for hit, unknown in zip(buffers, said, strict=True):
        role = hit.expected.role
        known = role is Role.BUFFER or loading.takes(hit.expected.name)
        groups.setdefault((role, known or unknown.silent), []).append(hit.stored)
    for role, silent in sorted(groups, reverse=True):
        tensors = by_name(groups[role, silent])
        yield StoredBuffer(tensors=tensors, silent=silent, reason=BUFFERS[role])


def _pairs(hits: list[Hit]) -> tuple[MatchedPair, ...]:
    """Sort pairs by both names, because several may be in one packed tensor."""
    ordered = naturally_sorted(hits, attrgetter("expected.name"))
    ordered = naturally_sorted(ordered, attrgetter("stored.name"))
    return tuple(MatchedPair(stored=hit.stored, expected=hit.expected) for hit in ordered)
