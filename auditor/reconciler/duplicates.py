"""Stored tensors whose parameter another stored tensor holds already: ties and duplicates."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from auditor.analytic import Role
from auditor.reconciler.findings import Duplicate, Finding, TiedWeight
from auditor.reconciler.matching import Hit
from auditor.tensors import StoredTensor, natural_key
from auditor.walker import Counted


class Copy(NamedTuple):
    """A stored tensor whose parameter another stored one holds already."""

    hit: Hit
    kept: StoredTensor  # the other
    same: bool  # the config ties them, and both are the very same bytes of one file


def copied_of(
    copies: tuple[Hit, ...],
    answered: tuple[Hit, ...],
    plain: Mapping[str, StoredTensor],
    shared: Mapping[str, str],
) -> tuple[Copy, ...]:
    """What each copy is a copy of; `plain` and `answered` hold what counts, by expected name."""
    others = {hit.expected.name: hit.stored for hit in answered} if copies else {}
    found: list[Copy] = []
    for hit in copies:
        tied = hit.expected.role is Role.TIED
        target = (hit.expected.tied_to or "") if tied else hit.expected.name
        kept = plain.get(target) or others[target]
        first, second = (shared.get(name, name) for name in (hit.stored.name, kept.name))
        same = tied and first == second and hit.stored.file == kept.file
        found.append(Copy(hit, kept, same))
    return tuple(found)


def duplicates(copied: tuple[Copy, ...]) -> Iterator[Finding]:
    """Ties that are the very same bytes are told as tied, all others as duplicates."""
    groups: dict[str, list[Copy]] = {}
    for copy in copied:
        groups.setdefault(_why(copy), []).append(copy)
    for reason, items in groups.items():
        items.sort(key=lambda copy: (natural_key(copy.hit.stored.name), copy.hit.stored.file))
        of = tuple(copy.kept.name for copy in items)
        if items[0].same:
            named = (copy.hit.expected._replace(name=copy.hit.stored.name) for copy in items)
            yield TiedWeight(tensors=tuple(named), to=of, reason=reason)
        else:
            tensors = tuple(copy.hit.stored for copy in items)
            yield Duplicate(tensors=tensors, of=of, reason=reason)


def counted_once(
    counted: tuple[tuple[StoredTensor, int, int], ...], shared: Mapping[str, str]
) -> tuple[tuple[StoredTensor, int, int], ...]:
    """Bytes that have several names are counted under one of them."""
    if not shared:
        return counted
    return tuple(
        Counted(one._replace(elements=0) if one.name in shared else one, parameters, fate)
        for one, parameters, fate in counted
    )


def _why(copy: Copy) -> str:
    if copy.same:
        return "stored as the very same bytes as the tensor that the config ties it to"
    if copy.hit.expected.role is Role.TIED:
        return (
            "the config ties it to another tensor, yet the file stores both; "
            "only their values could show whether they are the same"
        )
    if copy.kept.name == copy.hit.stored.name:
        return f"the same name is stored in {copy.kept.file} as well"
    return "another stored name loads into the same parameter; only one is read"
