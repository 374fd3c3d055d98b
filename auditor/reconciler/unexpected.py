"""Stored tensors that the target class does not use, and the sibling classes that do."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from auditor.analytic import ExpectedTensor, Role
from auditor.analytic.catalogue import Sibling
from auditor.analytic.family_names import Union
from auditor.analytic.loading import Loading
from auditor.layouts import learned
from auditor.reconciler.findings import (
    MOST_NAMED,
    Finding,
    StoredBuffer,
    Unexpected,
    Unused,
    by_name,
)
from auditor.reconciler.matching import Hit, Places
from auditor.reconciler.status import Fate
from auditor.tensors import StoredTensor

BUFFERS = {
    Role.LEGACY: "stored by some versions, and not learned",
    Role.BUFFER: "stored beside the parameters, and not learned",
}
_UNSAID = "; from_pretrained leaves it out and does not report it"


class UnexpectedTensor(NamedTuple):
    """A stored tensor without a place in the target class."""

    tensor: StoredTensor
    parameters: int
    fate: int
    used_by: tuple[str, ...] = ()  # sibling classes that use it, in the family's order
    known_to: str = ""  # a sibling that has the name, and does not use the tensor
    reason: str | None = None  # why it does not
    implied: int | None = None  # the elements that a sibling with that name expects
    silent: bool = False  # from_pretrained does not report it


def identify(
    tensors: Iterable[StoredTensor],
    loading: Loading,
    siblings: Callable[[], tuple[Sibling, ...]],
) -> Iterator[UnexpectedTensor]:
    """Ask every class of the family for each tensor; `loading` is the target class's."""
    family = tuple(
        (sibling.target, Places(sibling.names, sibling.prefix, sibling.loading))
        for sibling in siblings()
    )
    may_be_known = _prefilter(family)
    for tensor in tensors:
        names = loading.reported(tensor.name)
        silent = all(map(loading.leaves_out, names))
        if any(map(loading.is_buffer, names)):
            yield _buffer(tensor, Role.LEGACY, None)._replace(silent=silent)
        elif may_be_known(tensor.name):
            yield _identify(tensor, family)._replace(silent=silent)
        else:
            yield UnexpectedTensor(tensor, learned(tensor), Fate.UNEXPECTED.value, silent=silent)


def _prefilter(family: tuple[tuple[str, Places], ...]) -> Callable[[str], bool]:
    """Whether some class may know a name; where this is false, none does.

    A family has ten classes and each of them four places to look: 66 us a name, 20 s of an audit
    with 300,000 foreign ones. All names that `Places.of` looks for are looked for here at once.
    """
    known = Union(places.names for _, places in family)
    kinds = {
        (of.prefix, of.loading.renames, of.loading.legacy, of.loading.kept): of.loading
        for _, of in family
    }

    def may_be(stored: str) -> bool:
        for (prefix, *_), rules in kinds.items():
            for name in {stored, rules.of_old(rules.renamed(stored))[0]}:
                if name in known:
                    return True
                if prefix and (
                    f"{prefix}.{name}" in known
                    or (name.startswith(prefix) and name[len(prefix) + 1 :] in known)
                ):
                    return True
        return False

    return may_be


def _identify(tensor: StoredTensor, siblings: Iterable[tuple[str, Places]]) -> UnexpectedTensor:
    used_by: list[str] = []
    roles: set[Role] = set()
    known_to, reason = "", None
    implied: int | None = None
    for target, places in siblings:
        known = places.of(tensor.name).expected
        if known is None:
            continue
        if not known.role.learned:
            return _buffer(tensor, known.role, known.elements)
        if known.role is Role.EXTRA:
            return _extra(tensor, known)
        if tensor.shape is None or tensor.shape == known.shape:
            used_by.append(target)
            roles.add(known.role)
            implied = known.elements
        elif reason is None:
            known_to = target
            reason = f"{target} knows it, but with the shape {known.shape}"
    if not used_by:
        unexpected = Fate.UNEXPECTED.value
        return UnexpectedTensor(tensor, learned(tensor), unexpected, (), known_to, reason)
    parameters = 0 if roles == {Role.TIED} else learned(tensor)
    return UnexpectedTensor(tensor, parameters, Fate.UNUSED.value, tuple(used_by), implied=implied)


def _buffer(tensor: StoredTensor, role: Role, implied: int | None) -> UnexpectedTensor:
    return UnexpectedTensor(tensor, 0, Fate.BUFFER.value, reason=BUFFERS[role], implied=implied)


def read_by_no_class(hit: Hit, loading: Loading) -> UnexpectedTensor:
    """A tensor that, by the rules of the target class, no class here reads."""
    silent = all(map(loading.leaves_out, loading.reported(hit.stored.name)))
    return _extra(hit.stored, hit.expected)._replace(silent=silent)


def _extra(tensor: StoredTensor, known: ExpectedTensor) -> UnexpectedTensor:
    return UnexpectedTensor(tensor, learned(tensor), Fate.UNUSED.value, implied=known.elements)


def unexpected_findings(unexpected: Iterable[UnexpectedTensor], target: str) -> Iterator[Finding]:
    """One finding for each use that the family has for such tensors."""
    groups: dict[tuple[int, tuple[str, ...], bool, str, str | None, bool], list[StoredTensor]] = {}
    for item in unexpected:
        copies = item.parameters != learned(item.tensor)
        key = (item.fate, item.used_by, copies, item.known_to, item.reason, item.silent)
        groups.setdefault(key, []).append(item.tensor)
    for (fate, used_by, copies, known_to, reason, silent), found in groups.items():
        if fate == Fate.UNEXPECTED:
            yield _unexpected(found, reason, known_to, silent=silent)
            continue
        tensors = by_name(found)
        unsaid = _UNSAID if silent else ""
        if fate == Fate.BUFFER:
            yield StoredBuffer(tensors=tensors, silent=silent, reason=reason or "")
        else:
            yield Unused(
                tensors=tensors,
                used_by=used_by,
                copies=copies,
                silent=silent,
                reason=f"{target} does not use it; {_listed(used_by)}{unsaid}",
            )


def _unexpected(
    found: list[StoredTensor], reason: str | None, known_to: str, *, silent: bool
) -> Unexpected:
    named = by_name(found, MOST_NAMED)
    reason = reason or "no class of this family has a tensor of this name"
    more = len(found) - len(named)
    unnamed = f"; {more:,} more are counted and not named" if more else ""
    parameters = sum(map(learned, found)) - sum(map(learned, named)) if more else 0
    return Unexpected(
        tensors=named,
        more=more,
        more_parameters=parameters,
        known_to=known_to,
        silent=silent,
        reason=reason + unnamed + (_UNSAID if silent else ""),
    )


def _listed(classes: tuple[str, ...]) -> str:
    if not classes:
        return "no class here does, other software may"
    if len(classes) == 1:
        return f"{classes[0]} does"
    return f"{', '.join(classes[:-1])} and {classes[-1]} do"
