"""The counting of copies and packed tensors, which are not one tensor of the model each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import NamedTuple

from auditor.analytic import Role
from auditor.layouts.packing import PLAIN, UNPACKED, LogicalTensor, Unpacked
from auditor.reconciler.findings import (
    BadQuantization,
    Duplicate,
    Finding,
    QuantizationData,
    TiedWeight,
    by_name,
)
from auditor.reconciler.matching import Fate, Hit
from auditor.tensors import StoredTensor, natural_key, naturally_sorted
from auditor.walker import Counted

_Item = tuple[StoredTensor, int, int]  # the fields of walker.Counted


class Copy(NamedTuple):
    """A stored tensor whose parameter another stored tensor already provides."""

    hit: Hit
    kept: StoredTensor  # the tensor that counts
    same: bool  # whether the config ties them and they are identical bytes of one file


def copied_of(
    copies: tuple[Hit, ...],
    answered: tuple[Hit, ...],
    plain: Mapping[str, StoredTensor],
    shared: Mapping[str, str],
) -> tuple[Copy, ...]:
    """Find the original of each copy among `plain` and `answered`, by expected name."""
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
    """Yield ties of identical bytes as tied, and all other copies as duplicates."""
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


def counted_once(counted: tuple[_Item, ...], shared: Mapping[str, str]) -> tuple[_Item, ...]:
    """Count bytes that have several names under one name only."""
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


# --- packed tensors: their contents are matched, the stored tensors are counted ----------------


def packed_dtypes(found: "Apart") -> Mapping[tuple[str, str], str]:
    """The dtype of the contents of each packed tensor, by its name and file."""
    return {
        (piece.stored.name, piece.stored.file): piece.dtype
        for piece in found.pieces
        if piece.dtype not in UNPACKED
    }


class Apart(NamedTuple):
    """The stored tensors of a packed checkpoint, by their use."""

    alone: Sequence[StoredTensor]  # each is one tensor of the model, unchanged
    scaled: tuple[StoredTensor, ...]  # those of `alone` that are packed by their dtype
    pieces: tuple[LogicalTensor, ...]  # the contents of the others
    serving: tuple[StoredTensor, ...]  # quantization data


def apart(tensors: Sequence[StoredTensor], unpacked: Unpacked) -> Apart:
    """Separate stored tensors by use; an 8-bit weight that only needs scales stays unchanged.

    Pieces that share a stored tensor are sorted by their names, so a later sort by stored names
    does not depend on the order of the files.
    """
    if unpacked is PLAIN:
        return Apart(tensors, (), (), ())
    pieces = unpacked.pieces
    serving = tuple(chain.from_iterable(notes.tensors for notes in unpacked.quantization_data))
    holders = {id(piece.stored) for piece in pieces}
    if len(holders) < len(pieces):
        pieces = tuple(naturally_sorted(pieces, attrgetter("name")))
    taken = {*holders, *map(id, serving)}  # a layout returns the objects that it received
    alone = [tensor for tensor in tensors if id(tensor) not in taken]
    scaled = tuple(tensor for tensor in unpacked.whole if tensor.dtype not in UNPACKED)
    return Apart(alone, scaled, pieces, serving)


def counted_as_stored(counted: Iterable[_Item], found: Apart) -> Iterable[_Item]:
    """Count each stored tensor once, with the parameters of its pieces."""
    serving = zip(found.serving, repeat(0), repeat(Fate.QUANTIZATION_DATA.value))
    return chain(_with_pieces(counted, found.pieces) if found.pieces else counted, serving)


def _with_pieces(counted: Iterable[_Item], pieces: Iterable[LogicalTensor]) -> Iterator[_Item]:
    raw = {(piece.stored.name, piece.stored.file): piece.stored for piece in pieces}
    sums: dict[tuple[str, str], _Item] = {}
    for item in counted:
        tensor, parameters, fate = item
        key = (tensor.name, tensor.file)
        if key in raw:
            _, before, fates = sums.get(key, (tensor, 0, 0))
            sums[key] = Counted(raw[key], before + parameters, fates | fate)
        else:
            yield item
    yield from sums.values()


def packing_findings(unpacked: Unpacked) -> Iterator[QuantizationData | BadQuantization]:
    """Yield the quantization data in the layout's order, and the faults of the layout."""
    for notes in unpacked.quantization_data:  # 46,122 in DeepSeek-V3, which `fold` sorts
        yield QuantizationData(tensors=tuple(notes.tensors), reason=notes.reason)
    for fault in unpacked.faults:
        yield BadQuantization(tensors=by_name(fault.tensors), reason=fault.reason)
