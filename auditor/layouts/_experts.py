"""Experts that are stacked in one tensor, where the architecture names each by itself.

Stacked is (E, out, in), an expert after the other; halves are what gates and what is gated, one
above the other in (2 * F, D). Who stacks: fused.py (transformers), gguf and mlx.
"""

from bisect import bisect_left
from typing import NamedTuple

from auditor.layouts.packing import Implied, Shape

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
