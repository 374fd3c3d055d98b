"""Experts that are stacked in one tensor, where the architecture names a tensor for each.

transformers 5 holds the experts of a layer as two tensors, and some checkpoints store them so
(Qwen3.5-MoE's on the Hub), though save_pretrained writes each by itself; loading takes both forms.
For E experts of widths D and F, with the names of Qwen and of Mixtral:

    experts.gate_up_proj  (E, 2F, D)   E times two halves, gate_proj or w1 (F, D) above
                                       up_proj or w3 (F, D)
    experts.down_proj     (E, D, F)    E times down_proj or w2 (D, F)

The packed layouts come first: what they find in a fused tensor is cut up here as well.

Stacked is (E, out, in), an expert after the other. Others who stack are gguf and mlx.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from auditor.layouts.packing import PLAIN, Implied, LogicalTensor, PackingFault, Shape, Unpacked
from auditor.tensors import StoredTensor

_NAME = "all experts of a layer in one tensor"
_MOST = 1 << 20  # experts that are looked for; an expectation lists no more tensors
AXES = 3  # (E, out, in)

# The last part of a stacked tensor's name -> the names of an expert's parts in it, by either style.
_PARTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
ENDS = tuple(f".experts.{last}" for last in _PARTS)


class Stacked(NamedTuple):
    """The experts that the architecture has where one tensor is stored."""

    module: str  # "model.layers.0.mlp.experts"
    parts: tuple[str, ...]  # "gate_proj", "up_proj"
    experts: int
    each: Shape  # of one part of one expert, (out, in)

    @property
    def shape(self) -> Shape:
        rows, columns = self.each
        return (self.experts, len(self.parts) * rows, columns)


def separated(unpacked: Unpacked, tensors: Iterable[StoredTensor], implied: Implied) -> Unpacked:
    """The same with fused experts in pieces; the same object if no experts are fused."""
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
        whole=tuple(one for one in unpacked.whole if (one.name, one.file) not in cut_up),
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


def stacked_experts(name: str, implied: Implied) -> Stacked | None:
    """None where the architecture has a tensor of that name itself, or no experts there."""
    if not name.endswith(ENDS) or implied(name) is not None:
        return None
    module, _, last = name.rpartition(".")
    for parts in _PARTS[last]:
        each = implied(f"{module}.0.{parts[0]}.weight")
        if each is not None and len(each) == AXES - 1:
            experts = count_experts(f"{module}.", f".{parts[0]}.weight", implied)
            return Stacked(module, parts, experts, each)
    return None


def too_many_experts(stored: int, known: int) -> str:
    """What is wrong with a stack that is higher than the architecture's."""
    return f"holds {stored:,} experts, the architecture has {known:,}"


def count_experts(before: str, after: str, implied: Implied, *, stored: int | None = None) -> int:
    """How many of `before + "0" + after`, `before + "1" + after`, ... the architecture has.

    No more than are `stored`. Found by halves: a file can say that it holds 2**40.
    """

    def absent(number: int) -> bool:
        return implied(f"{before}{number}{after}") is None

    most = _MOST if stored is None else min(stored, _MOST)
    return bisect_left(range(most), True, key=absent)  # noqa: FBT003 - what is looked for
