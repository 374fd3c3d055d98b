"""One of two checkpoints that are compared: its tensors, unpacked, and its config."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.bounded.json_text import parse_object
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.reconciler.contents import contents
from auditor.tensors import StoredTensor, learned


class SideTensor(NamedTuple):
    """A tensor of the model, plain or packed."""

    shape: tuple[int, ...] | None  # None: only an index names it, or its packing has no shape
    dtype: str | None
    file: str
    parameters: int


class Side(Struct, frozen=True, kw_only=True):
    """One of two checkpoints."""

    model: str
    tensors: Mapping[str, SideTensor]
    config: Mapping[str, Any]
    layout: str | None = None  # how the weights are packed
    files: frozenset[str] = frozenset()


def side_of(snapshot: Snapshot) -> Side:
    """Return the tensors and the config; raise SourceError if there is nothing to compare."""
    stored, model = contents(snapshot), snapshot.model
    if stored.empty:
        raise SourceError(Reason.NO_WEIGHTS, f"{model} has no weights to compare")
    if stored.unread:
        names = ", ".join(sorted(item.file for item in stored.unread)[:3])
        raise SourceError(Reason.UNREADABLE, f"{model}: {names} cannot be read")
    file, packing = snapshot.config, snapshot.packing
    try:
        config = dict(parse_object(file.content, file.name)) if file else {}
        declared = declaration(config, {packing.name: packing.content} if packing else {})
        packer = unknown_quantization(declared) if declared else None
        if packer is not None:
            raise SourceError(Reason.UNKNOWN_LAYOUT, f"{model} is packed by {packer}")
        # Without an architecture there are no expected shapes: packed shapes stay unknown.
        unpacked = unpack_tensors(stored.tensors, declared, lambda _name: None)
    except CheckpointError as error:
        raise SourceError(Reason.UNKNOWN_LAYOUT, f"{model}: {error}") from None
    packed_names = {piece.stored.name for piece in unpacked.tensors}
    packed_names |= {note.name for data in unpacked.quantization_data for note in data.tensors}
    tensors = {
        tensor.name: _plain(tensor) for tensor in stored.tensors if tensor.name not in packed_names
    }
    for piece in unpacked.tensors:
        count = prod(piece.shape) if piece.shape is not None else 0
        tensors[piece.name] = SideTensor(piece.shape, piece.dtype, piece.stored.file, count)
    return Side(
        model=model,
        tensors=tensors,
        config=config,
        layout=unpacked.layout if unpacked.tensors else None,
        files=frozenset(tensor.file for tensor in stored.tensors),
    )


def _plain(tensor: StoredTensor) -> SideTensor:
    count = (tensor.elements or 0) if learned(tensor) else 0
    return SideTensor(tensor.shape, tensor.dtype, tensor.file, count)
