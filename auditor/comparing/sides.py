"""A side of a comparison: the tensors of a checkpoint as its model has them, and its config."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.bounded_json import parse_object
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.reconciler.contents import contents
from auditor.tensors import StoredTensor, learned

Shape = tuple[int, ...]


class SideTensor(NamedTuple):
    """A tensor of the model, however it is stored."""

    shape: Shape | None  # None: only an index names it, or the packing does not say
    dtype: str | None
    file: str
    parameters: int


class Side(Struct, frozen=True, kw_only=True):
    """One of two checkpoints."""

    model: str
    tensors: Mapping[str, SideTensor]
    config: Mapping[str, Any]
    layout: str | None = None  # how its weights are packed
    files: frozenset[str] = frozenset()


def side_of(snapshot: Snapshot) -> Side:
    """SourceError where a checkpoint has nothing to compare."""
    found = contents(snapshot)
    if found.empty:
        raise SourceError(Reason.NO_WEIGHTS, f"{snapshot.model} has no weights to compare")
    if found.unread:
        names = ", ".join(sorted(item.file for item in found.unread)[:3])
        raise SourceError(Reason.UNREADABLE, f"{snapshot.model}: {names} cannot be read")
    try:
        config = (
            dict(parse_object(snapshot.config.content, snapshot.config.name))
            if snapshot.config
            else {}
        )
        packing = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
        declared = declaration(config, packing)
        packer = unknown_quantization(declared) if declared else None
        if packer is not None:
            raise SourceError(Reason.UNKNOWN_LAYOUT, f"{snapshot.model} is packed by {packer}")
        # Two checkpoints are compared without an architecture, which would say packed shapes.
        unpacked = unpack_tensors(found.tensors, declared, lambda _name: None)
    except CheckpointError as error:
        raise SourceError(Reason.UNKNOWN_LAYOUT, f"{snapshot.model}: {error}") from None
    notes = {one.name for data in unpacked.quantization_data for one in data.tensors}
    packed = {one.stored.name for one in unpacked.tensors} | notes
    tensors = {one.name: _plain(one) for one in found.tensors if one.name not in packed}
    for piece in unpacked.tensors:
        count = prod(piece.shape) if piece.shape is not None else 0
        tensors[piece.name] = SideTensor(piece.shape, piece.dtype, piece.stored.file, count)
    return Side(
        model=snapshot.model,
        tensors=tensors,
        config=config,
        layout=unpacked.layout if unpacked.tensors else None,
        files=frozenset(one.file for one in found.tensors),
    )


def _plain(tensor: StoredTensor) -> SideTensor:
    count = tensor.elements or 0
    return SideTensor(tensor.shape, tensor.dtype, tensor.file, count if learned(tensor) else 0)
