"""Experts stacked in one stored tensor, while the architecture has a tensor for each expert.

transformers 5 keeps the experts of a layer in two tensors, and some checkpoints store these two
(Qwen3.5-MoE's on the Hub), although save_pretrained writes each expert separately; loading accepts
both forms. For E experts of widths D and F, with the names of Qwen and of Mixtral:

    experts.gate_up_proj  (E, 2F, D)   E times two halves, gate_proj or w1 (F, D) above
                                       up_proj or w3 (F, D)
    experts.down_proj     (E, D, F)    E times down_proj or w2 (D, F)

Packed layouts run first; this module then also splits the fused tensors that they unpacked.

A stack is (E, out, in), one expert after the other. gguf and mlx also stack experts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from auditor.layouts.packing import (
    PLAIN,
    Implied,
    LogicalTensor,
    PackingFault,
    PackingLedger,
    Shape,
    Unpacked,
)
from auditor.tensors import StoredTensor

_NAME = "all experts of a layer in one tensor"
_MOST = 1 << 20  # the most experts: an expectation never lists more tensors
AXES = 3  # (E, out, in)

# The last part of a stacked tensor's name -> the names of an expert's parts in it, in each style.
_PARTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
ENDS = tuple(f".experts.{last}" for last in _PARTS)


class Stacked(NamedTuple):
    """The experts of the architecture that one stored tensor contains."""

    module: str  # "model.layers.0.mlp.experts"
    parts: tuple[str, ...]  # "gate_proj", "up_proj"
    experts: int
    part_shape: Shape  # the shape of one projection of one expert, (out, in)

    @property
    def shape(self) -> Shape:
        rows, columns = self.part_shape
        return (self.experts, len(self.parts) * rows, columns)


def separated(unpacked: Unpacked, tensors: Iterable[StoredTensor], implied: Implied) -> Unpacked:
    """Split fused experts into the model's tensors; return `unpacked` itself if it has none."""
    packed = unpacked.tensors
    fused = [piece for piece in packed if piece.name.endswith(ENDS)]
    taken = {(piece.stored.name, piece.stored.file) for piece in packed}
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
    cut_up = {(piece.stored.name, piece.stored.file) for piece in cut}
    layouts = () if unpacked is PLAIN else (unpacked.layout,)
    return replace(
        unpacked,
        layout="; ".join((*layouts, _NAME)) if cut else unpacked.layout,
        pieces=(
            *(piece for piece in unpacked.pieces if piece not in cut),
            *chain.from_iterable(cut.values()),
        ),
        unchanged=tuple(one for one in unpacked.unchanged if (one.name, one.file) not in cut_up),
        faults=(*unpacked.faults, *faults),
    )


def _fault(piece: LogicalTensor, expected: Stacked) -> str | None:
    """Return why a tensor cannot be split; None if it can be, or if its shape is unknown."""
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
    """Yield the tensors of the experts in a stack, which may be fewer experts than expected."""
    experts, shape = expected.experts, None
    if piece.shape is not None:
        experts, rows, columns = piece.shape
        shape = (rows // len(expected.parts), columns)
    for number in range(experts):
        for part in expected.parts:
            name = f"{expected.module}.{number}.{part}.weight"
            yield LogicalTensor(piece.stored, name, shape, piece.dtype)


def stacked_experts(name: str, implied: Implied) -> Stacked | None:
    """Return the experts that a tensor of this name stacks; None for any other name.

    A name that the architecture itself has is not a stack.
    """
    if not name.endswith(ENDS) or implied(name) is not None:
        return None
    module, _, last = name.rpartition(".")
    for parts in _PARTS[last]:
        part_shape = implied(f"{module}.0.{parts[0]}.weight")
        if part_shape is not None and len(part_shape) == AXES - 1:
            experts = count_experts(f"{module}.", f".{parts[0]}.weight", implied)
            return Stacked(module, parts, experts, part_shape)
    return None


def unstack(
    tensor: StoredTensor,
    experts: tuple[str, ...],
    shape: Shape | None,
    dtype: str,
    ledger: PackingLedger,
) -> None:
    """Record a tensor that stacks the named experts, unpacked to `shape`, as a tensor for each."""
    if shape is not None and (len(shape) < AXES - 1 or shape[0] != len(experts) or not shape[0]):
        higher = len(shape) > 1 and shape[0] > len(experts)
        none = f"{shape} cannot be {len(experts):,} stacked experts"
        ledger.fault(too_many_experts(shape[0], len(experts)) if higher else none, tensor)
        ledger.tensors.append(LogicalTensor(tensor, tensor.name, shape, dtype))
        return
    own = None if shape is None else shape[1:]
    ledger.tensors.extend(LogicalTensor(tensor, name, own, dtype) for name in experts)


def too_many_experts(stored: int, expected: int) -> str:
    """Return the message for a stack with more experts than the architecture has."""
    return f"holds {stored:,} experts, the architecture has {expected:,}"


def count_experts(before: str, after: str, implied: Implied, *, stored: int | None = None) -> int:
    """Count the names `before + "0" + after`, `before + "1" + after`, ... of the architecture.

    The count is at most `stored`. It is found by bisection: a file may declare 2**40 experts.
    """

    def absent(number: int) -> bool:
        return implied(f"{before}{number}{after}") is None

    most = _MOST if stored is None else min(stored, _MOST)
    return bisect_left(range(most), True, key=absent)  # noqa: FBT003 - the value that bisect looks for
