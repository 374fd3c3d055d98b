"""Packed tensors: the tensors in them are matched, the stored ones are counted."""

from collections.abc import Iterable, Iterator, Mapping

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


def _holders(unpacked: Unpacked) -> dict[tuple[str, str], StoredTensor]:
    """The stored tensors that pieces are in, by name and file."""
    return {(piece.stored.name, piece.stored.file): piece.stored for piece in unpacked.tensors}


def sorted_logical_tensors(unpacked: Unpacked) -> tuple[LogicalTensor, ...]:
    """The pieces; those that share a stored tensor in the order of their names.

    What is sorted by stored name later on is then the same whatever order the files have.
    """
    pieces = unpacked.tensors
    if len(_holders(unpacked)) == len(pieces):
        return pieces
    return tuple(sorted(pieces, key=lambda piece: natural_key(piece.name)))


def not_packed(tensors: Iterable[StoredTensor], unpacked: Unpacked) -> Iterable[StoredTensor]:
    """The stored tensors that hold no pieces and serve none."""
    if unpacked is PLAIN:
        return tensors
    taken = set(_holders(unpacked))
    for notes in unpacked.quantization_data:
        taken.update((tensor.name, tensor.file) for tensor in notes.tensors)
    return [tensor for tensor in tensors if (tensor.name, tensor.file) not in taken]


def counted_as_stored(counted: Iterable[_Item], unpacked: Unpacked) -> tuple[_Item, ...]:
    """Each stored tensor once, with the parameters of its pieces; quantization data has none."""
    if unpacked is PLAIN:
        return tuple(counted)
    raw = _holders(unpacked)
    plain: list[_Item] = []
    sums: dict[tuple[str, str], _Item] = {}
    for tensor, parameters, fate in counted:
        key = (tensor.name, tensor.file)
        if key in raw:
            _, before, fates = sums.get(key, (tensor, 0, 0))
            sums[key] = Counted(raw[key], before + parameters, fates | fate)
        else:
            plain.append((tensor, parameters, fate))
    fate = Fate.QUANTIZATION_DATA.value
    notes = (
        Counted(tensor, 0, fate) for one in unpacked.quantization_data for tensor in one.tensors
    )
    return (*plain, *sums.values(), *notes)


def packing_findings(unpacked: Unpacked) -> Iterator[QuantizationData | BadQuantization]:
    """What serves the packed tensors, and what contradicts them."""
    for notes in unpacked.quantization_data:
        yield QuantizationData(tensors=by_name(notes.tensors), reason=notes.reason)
    for fault in unpacked.faults:
        yield BadQuantization(tensors=by_name(fault.tensors), reason=fault.reason)
