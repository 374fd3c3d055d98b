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


def packed_dtypes(unpacked: Unpacked) -> Mapping[tuple[str, str], str]:
    """Name and file of every stored tensor that is packed, and the dtype of what is in it."""
    return {
        (piece.stored.name, piece.stored.file): piece.dtype
        for piece in unpacked.tensors
        if piece.dtype not in UNPACKED
    }


class Apart(NamedTuple):
    """The stored tensors of a packed checkpoint, by what is done with them."""

    alone: Sequence[StoredTensor]  # each is one tensor of the model, as it is
    pieces: tuple[LogicalTensor, ...]  # what is in the others
    serving: tuple[StoredTensor, ...]  # quantization data


def apart(tensors: Sequence[StoredTensor], unpacked: Unpacked) -> Apart:
    """A weight of 8 bits that only needs scales beside it is a tensor of the model as it is.

    Of pieces that share a stored tensor the order is that of their names: what is sorted by
    stored name later on is then the same whatever order the files have.
    """
    if unpacked is PLAIN:
        return Apart(tensors, (), ())
    pieces = tuple(piece for piece in unpacked.tensors if not piece.whole)
    serving = tuple(chain.from_iterable(notes.tensors for notes in unpacked.quantization_data))
    holders = {_place(piece.stored) for piece in pieces}
    if len(holders) < len(pieces):
        pieces = tuple(sorted(pieces, key=lambda piece: natural_key(piece.name)))
    taken = {*holders, *map(_place, serving)}
    return Apart([one for one in tensors if (one[0], one[4]) not in taken], pieces, serving)


def counted_as_stored(counted: Iterable[_Item], found: Apart) -> Iterator[_Item]:
    """Each stored tensor once, with the parameters of its pieces; quantization data has none."""
    raw = {_place(piece.stored): piece.stored for piece in found.pieces}
    sums: dict[tuple[str, str], _Item] = {}
    for item in counted:
        tensor, parameters, fate = item
        key = (tensor[0], tensor[4])
        if key in raw:
            _, before, fates = sums.get(key, (tensor, 0, 0))
            sums[key] = Counted(raw[key], before + parameters, fates | fate)
        else:
            yield item
    yield from sums.values()
    yield from zip(found.serving, repeat(0), repeat(Fate.QUANTIZATION_DATA.value))


def _place(tensor: StoredTensor) -> tuple[str, str]:
    return tensor.name, tensor.file


def packing_findings(unpacked: Unpacked) -> Iterator[QuantizationData | BadQuantization]:
    """What serves the packed tensors, and what contradicts them."""
    for notes in unpacked.quantization_data:
        yield QuantizationData(tensors=by_name(notes.tensors), reason=notes.reason)
    for fault in unpacked.faults:
        yield BadQuantization(tensors=by_name(fault.tensors), reason=fault.reason)
