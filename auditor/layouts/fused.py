"""Experts that are stacked in one tensor, where the architecture names a tensor for each.

transformers 5 holds the experts of a layer as two tensors, and some checkpoints store them so
(Qwen3.5-MoE's on the Hub), though save_pretrained writes each by itself; loading takes both forms.
For E experts of widths D and F, with the names of Qwen and of Mixtral:

    experts.gate_up_proj  (E, 2F, D)   E times two halves, gate_proj or w1 (F, D) above
                                       up_proj or w3 (F, D)
    experts.down_proj     (E, D, F)    E times down_proj or w2 (D, F)

The packed layouts come first: what they find in a fused tensor is cut up here as well.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from auditor.layouts._experts import AXES, ENDS, Stacked, stacked_experts, too_many_experts
from auditor.layouts.packing import PLAIN, Implied, LogicalTensor, PackingFault, Unpacked
from auditor.tensors import StoredTensor

_NAME = "all experts of a layer in one tensor"


def separated(unpacked: Unpacked, tensors: Iterable[StoredTensor], implied: Implied) -> Unpacked:
    """The same with fused experts in pieces; the same object if no experts are fused."""
    fused = [piece for piece in unpacked.tensors if piece.name.endswith(ENDS)]
    taken = {(piece.stored.name, piece.stored.file) for piece in unpacked.tensors}
    fused += [
        LogicalTensor(tensor, tensor.name, tensor.shape, tensor.dtype or "")
        for tensor in tensors
        if tensor.name.endswith(ENDS) and (tensor.name, tensor.file) not in taken
    ]
    cut: dict[LogicalTensor, tuple[LogicalTensor, ...]] = {}
    faults: list[PackingFault] = []
    for piece in fused:
        expected = stacked_experts(piece.name, implied)
        fault = _fault(piece, expected) if expected else None
        if fault:
            faults.append(PackingFault((piece.stored,), fault))
        elif expected:
            cut[piece] = tuple(_pieces(piece, expected))
    if not cut and not faults:
        return unpacked
    whole = tuple(piece for piece in unpacked.tensors if piece not in cut)
    layouts = () if unpacked is PLAIN else (unpacked.layout,)
    return replace(
        unpacked,
        layout="; ".join((*layouts, _NAME)) if cut else unpacked.layout,
        tensors=(*whole, *(one for each in cut.values() for one in each)),
        faults=(*unpacked.faults, *faults),
    )


def _fault(piece: LogicalTensor, expected: Stacked) -> str | None:
    """Why it cannot be cut, if it cannot; None as well where only an index names it."""
    if piece.shape is None:
        return None
    if len(piece.shape) != AXES:
        return f"is {piece.shape}; experts in one tensor have three axes"
    stored, rows, _ = piece.shape
    if stored > expected.experts:
        return too_many_experts(stored, expected.experts)
    if rows % len(expected.parts):
        return f"has {rows:,} rows for each expert, which cannot be two halves"
    return None


def _pieces(piece: LogicalTensor, expected: Stacked) -> Iterator[LogicalTensor]:
    """Of fewer experts than there should be, those that are there."""
    experts, shape = expected.experts, None
    if piece.shape is not None:
        experts, rows, columns = piece.shape
        shape = (rows // len(expected.parts), columns)
    for number in range(experts):
        for part in expected.parts:
            name = f"{expected.module}.{number}.{part}.weight"
            yield LogicalTensor(piece.stored, name, shape, piece.dtype)
