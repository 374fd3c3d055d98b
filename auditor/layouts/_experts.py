"""Experts that are stacked in one tensor, where the architecture names each by itself.

Stacked is (E, out, in), an expert after the other; halves are what gates and what is gated, one
above the other in (2 * F, D). Who stacks: fused.py (transformers), gguf and mlx.
"""

from bisect import bisect_left

from auditor.layouts.packing import Implied

_MOST = 1 << 20  # experts that are looked for; an expectation lists no more tensors


AXES = 3  # (E, out, in)


def too_many(stored: int, known: int) -> str:
    """What is wrong with a stack that is higher than the architecture's."""
    return f"holds {stored:,} experts, the architecture has {known:,}"


def count(before: str, after: str, implied: Implied, *, stored: int | None = None) -> int:
    """How many of `before + "0" + after`, `before + "1" + after`, ... the architecture has.

    No more than are `stored`. Found by halves: a file can say that it holds 2**40.
    """

    def absent(number: int) -> bool:
        return implied(f"{before}{number}{after}") is None

    most = _MOST if stored is None else min(stored, _MOST)
    return bisect_left(range(most), True, key=absent)  # noqa: FBT003 - what is looked for
