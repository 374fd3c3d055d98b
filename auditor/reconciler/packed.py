"""Packed tensors: the tensors in them are matched, the stored ones are counted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from auditor.layouts.packing import PLAIN, UNPACKED, LogicalTensor, Unpacked
from auditor.reconciler.findings import BadQuantization, QuantizationData, by_name
from auditor.reconciler.status import Fate
from auditor.tensors import StoredTensor, natural_key
from auditor.walker import Counted

_Item = tuple[StoredTensor, int, int]  # as walker.Counted has them


def packed_dtypes(found: "Apart") -> Mapping[tuple[str, str], str]:
    """Name and file of every stored tensor that is packed, and the dtype of what is in it."""
    return {
        (piece.stored.name, piece.stored.file): piece.dtype
        for piece in found.pieces
        if piece.dtype not in UNPACKED
    }


class Apart(NamedTuple):
    """The stored tensors of a packed checkpoint, by what is done with them."""

    alone: Sequence[StoredTensor]  # each is one tensor of the model, as it is
    scaled: Mapping[str, str]  # name -> file of those that are packed all the same, by their dtype
    pieces: tuple[LogicalTensor, ...]  # what is in the others
    serving: tuple[StoredTensor, ...]  # quantization data


def apart(tensors: Sequence[StoredTensor], unpacked: Unpacked) -> Apart:
    """A weight of 8 bits that only needs scales beside it is a tensor of the model as it is.

    Of pieces that share a stored tensor the order is that of their names: what is sorted by
    stored name later on is then the same whatever order the files have.
    """
    if unpacked is PLAIN:
        return Apart(tensors, {}, (), ())
    pieces = tuple(piece for piece in unpacked.tensors if not piece.is_whole())
    whole = unpacked.tensors
    if pieces:
        whole = tuple(piece for piece in unpacked.tensors if piece.is_whole())
    serving = tuple(chain.from_iterable(notes.tensors for notes in unpacked.quantization_data))
    holders = {id(piece.stored) for piece in pieces}
    if len(holders) < len(pieces):
        pieces = tuple(sorted(pieces, key=lambda piece: natural_key(piece.name)))
    taken = {*holders, *map(id, serving)}  # a layout hands on what it was given
    alone = [tensor for tensor in tensors if id(tensor) not in taken]
    scaled = {piece.name: piece.stored.file for piece in whole if piece.dtype not in UNPACKED}
    return Apart(alone, scaled, pieces, serving)


def counted_as_stored(counted: Iterable[_Item], found: Apart) -> Iterator[_Item]:
    """Each stored tensor once, with the parameters of its pieces; quantization data has none."""
    yield from _with_pieces(counted, found.pieces) if found.pieces else counted
    yield from zip(found.serving, repeat(0), repeat(Fate.QUANTIZATION_DATA.value))


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
    """What serves the packed tensors, in the layout's order, and what contradicts them."""
    for notes in unpacked.quantization_data:  # of DeepSeek-V3 46,122, which `fold` puts in order
        yield QuantizationData(tensors=tuple(notes.tensors), reason=notes.reason)
    for fault in unpacked.faults:
        yield BadQuantization(tensors=by_name(fault.tensors), reason=fault.reason)
