"""Stored tensors that the target class does not use, and the sibling classes that do."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading, UnknownName
from auditor.analytic.tree_expectation import Sibling
from auditor.findings import (
    MOST_NAMED,
    Finding,
    OfStored,
    StoredBuffer,
    Unexpected,
    Unused,
    UnusedHead,
    by_name,
)
from auditor.names.kinds import answers_by_kind
from auditor.reconciler.matching import Candidate, Fate, Match, Places
from auditor.tensors import StoredTensor, learned

BUFFERS = {
    Role.LEGACY: "stored by some versions, and not learned",
    Role.BUFFER: "stored beside the parameters, and not learned",
}
# A lookup in all classes of a family takes 0.2 ms, so examples of each kind of names are looked up
# first, and no more names of other kinds than these: published models have a few hundred.
_MOST_LOOKED_UP = 10_000
_TASK = re.compile(r"For[A-Z]|Head")  # part of the names of classes with an output head
# Tasks of pretraining; many published base models still contain their heads.
_PRETRAINING = re.compile(r"For(PreTraining|MaskedLM|MaskedImageModeling|NextSentencePrediction)$")
_SILENT = "; from_pretrained leaves it out and does not report it"


class UnexpectedTensor(NamedTuple):
    """A stored tensor that the target class does not use."""

    tensor: StoredTensor
    parameters: int
    fate: int
    used_by: tuple[str, ...] = ()  # sibling classes that use it, in the family's order
    known_to: str = ""  # a sibling that has this name, but does not use the tensor
    reason: str | None = None  # why that sibling does not use the tensor
    implied: int | None = None  # elements of the tensor of this name in a sibling
    silent: bool = False  # whether from_pretrained does not report it


def identify(
    candidates: Sequence[Candidate],
    loading: Loading,
    siblings: Callable[[], tuple[Sibling, ...]],
) -> Iterator[UnexpectedTensor]:
    """Look up each tensor in every class of the family; `loading` has the target's rules."""
    classes = [
        (one.target, Places(one.names, one.prefix, one.loading))
        for one in (siblings() if candidates else ())
    ]

    def examine(some: Sequence[str]) -> list[tuple[UnknownName, bool]]:
        """Return the answer of the rules to each name, and whether some class has it."""
        known = [False] * len(some)
        for _, places in classes:
            for at, place in enumerate(places.of(some[:_MOST_LOOKED_UP])):
                known[at] = known[at] or place.expected is not None
        return list(zip(loading.unknown(some), known, strict=True))

    names = [name for _, name in candidates]
    answers = answers_by_kind(names, examine)
    known = list(dict.fromkeys(name for name, one in zip(names, answers, strict=True) if one[1]))
    by_name: dict[str, list[tuple[str, ExpectedTensor]]] = {}
    for target, places in classes:
        for name, place in zip(known, places.of(known), strict=True):
            if place.expected is not None:
                by_name.setdefault(name, []).append((target, place.expected))
    for (tensor, name), (unknown, _) in zip(candidates, answers, strict=True):
        if unknown.buffer:
            identified = _buffer(tensor, Role.LEGACY, None)
        else:
            identified = _used(tensor, by_name.get(name, ()))
        yield identified._replace(silent=True) if unknown.silent else identified


def _used(tensor: StoredTensor, by_class: Iterable[tuple[str, ExpectedTensor]]) -> UnexpectedTensor:
    used_by: list[str] = []
    roles: set[Role] = set()
    known_to, reason = "", None
    implied: int | None = None
    for target, expected in by_class:
        if not expected.role.learned:
            return _buffer(tensor, expected.role, expected.elements)
        if expected.role is Role.EXTRA:
            return _extra(tensor, expected)
        if tensor.shape is None or tensor.shape == expected.shape:
            used_by.append(target)
            roles.add(expected.role)
            implied = expected.elements
        elif reason is None:
            known_to = target
            reason = f"{target} knows it, but with the shape {expected.shape}"
    if not used_by:
        unexpected = Fate.UNEXPECTED.value
        return UnexpectedTensor(tensor, learned(tensor), unexpected, (), known_to, reason)
    parameters = 0 if roles == {Role.TIED} else learned(tensor)
    return UnexpectedTensor(tensor, parameters, Fate.UNUSED.value, tuple(used_by), implied=implied)


def _buffer(tensor: StoredTensor, role: Role, implied: int | None) -> UnexpectedTensor:
    return UnexpectedTensor(tensor, 0, Fate.BUFFER.value, reason=BUFFERS[role], implied=implied)


def read_by_no_class(hits: Collection[Match], loading: Loading) -> Iterator[UnexpectedTensor]:
    """Yield the matched tensors that no class reads, according to the target's loading rules."""
    unknown_names = loading.unknown([hit.stored.name for hit in hits]) if hits else ()
    for hit, unknown in zip(hits, unknown_names, strict=True):
        yield _extra(hit.stored, hit.expected)._replace(silent=unknown.silent)


def _extra(tensor: StoredTensor, expected: ExpectedTensor) -> UnexpectedTensor:
    return UnexpectedTensor(tensor, learned(tensor), Fate.UNUSED.value, implied=expected.elements)


def unexpected_findings(unexpected: Iterable[UnexpectedTensor], target: str) -> Iterator[Finding]:
    """Yield a finding for each group of tensors that the same classes use in the same way."""
    groups: dict[tuple[int, tuple[str, ...], bool, str, str | None, bool], list[StoredTensor]] = {}
    for item in unexpected:
        copies = item.parameters != learned(item.tensor)
        key = (item.fate, item.used_by, copies, item.known_to, item.reason, item.silent)
        groups.setdefault(key, []).append(item.tensor)
    for (fate, used_by, copies, known_to, reason, silent), group in groups.items():
        if fate == Fate.UNEXPECTED:
            yield _unexpected(group, reason, known_to, silent=silent)
            continue
        tensors = by_name(group)
        silence = _SILENT if silent else ""
        if fate == Fate.BUFFER:
            yield StoredBuffer(tensors=tensors, silent=silent, reason=reason or "")
        else:
            yield Unused(
                tensors=tensors,
                used_by=used_by,
                copies=copies,
                silent=silent,
                reason=f"{target} does not use it; {_listed(used_by)}{silence}",
            )


def with_unused_heads(
    findings: Sequence[Finding],
    expectation: Expectation,
    siblings: Callable[[], tuple[Sibling, ...]],
) -> Iterator[Finding]:
    """Yield the findings, with Unused as UnusedHead if a class with the head uses all tensors."""
    groups = [finding for finding in findings if Unused.describes(finding)]
    users = {name for group in groups for name in group.used_by}
    tasks = {
        name
        for name in users
        if _TASK.search(name) and all(name in group.used_by for group in groups)
    }
    if any(map(_PRETRAINING.search, users)) or not tasks:
        yield from findings
        return
    # Heads, and other differences between classes, are not in lists of layers.
    names = [
        tensor.name
        for tensor in expectation.tensors
        if tensor.role is Role.PARAMETER and not any(map(str.isdigit, tensor.name.split(".")))
    ]
    users_of_all = tuple(
        one.target
        for one in siblings()
        if one.target in tasks
        and all(place.expected for place in Places(one.names, one.prefix, one.loading).of(names))
    )
    use_all = f"{' and '.join(users_of_all)} {'use' if users_of_all[1:] else 'uses'}"
    reason = f"{expectation.target} has no such head; {use_all} every stored tensor"
    for finding in findings:
        if Unused.describes(finding) and users_of_all:
            yield UnusedHead(
                tensors=finding.tensors,
                used_by=users_of_all,
                copies=finding.copies,
                silent=finding.silent,
                reason=reason,
            )
        else:
            yield finding


def _unexpected(
    unexpected: list[StoredTensor], reason: str | None, known_to: str, *, silent: bool
) -> OfStored:
    named = by_name(unexpected, MOST_NAMED)
    reason = reason or "no class of this family has a tensor of this name"
    more = len(unexpected) - len(named)
    unnamed = f"; {more:,} more are counted and not named" if more else ""
    parameters = sum(map(learned, unexpected)) - sum(map(learned, named)) if more else 0
    return Unexpected(
        tensors=named,
        more=more,
        more_parameters=parameters,
        known_to=known_to,
        silent=silent,
        reason=reason + unnamed + (_SILENT if silent else ""),
    )


def _listed(classes: tuple[str, ...]) -> str:
    if not classes:
        return "no class here does, other software may"
    if len(classes) == 1:
        return f"{classes[0]} does"
    return f"{', '.join(classes[:-1])} and {classes[-1]} do"
