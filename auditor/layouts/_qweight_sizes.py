"""What a module of words takes, in each form of GPTQ and AWQ: the inverse of `_qweight`.

Of a linear (out, in) in b bits and groups of g inputs, as the docstrings of gptq and awq have it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from auditor.layouts._qweight import CONV1D, TILE
from auditor.layouts.packing import FLOATS, Implied, Members, Shape, WrittenTensor, tensor_name

_MATRIX = 2
_HALVES = ("F16", "BF16")


class PackedLinear(NamedTuple):
    """A linear, and how its numbers are packed."""

    outputs: int
    inputs: int
    bits: int
    group: int
    word: int = 32  # bits of an element of qweight

    @property
    def groups(self) -> int:
        return -(-self.inputs // self.group)


def packed_linear(
    module: str, implied: Implied, bits: int | None, group: int | None, word: int = 32
) -> PackedLinear | None:
    """What the architecture has there; None where it has no matrix, or the config says too little.

    `group` is -1 where all inputs are together.
    """
    shape = implied(tensor_name(module))
    if shape is None or len(shape) != _MATRIX or 0 in shape or bits is None or group is None:
        return None
    outputs, inputs = shape[::-1] if module.rpartition(".")[2] in CONV1D else shape
    return PackedLinear(outputs, inputs, bits, inputs if group < 1 else min(group, inputs), word)


def under_full_names(
    module: str, members: Members, parts: Mapping[str, WrittenTensor]
) -> dict[str, WrittenTensor]:
    """Those parts that the module has, by their whole names."""
    return {tensor_name(module, last): one for last, one in parts.items() if last in members}


def gptq_tensors(one: PackedLinear) -> dict[str, WrittenTensor]:
    """GPTQ: the inputs are packed, and the zero points along the outputs."""
    word = (f"I{one.word}",)
    return {
        "qweight": WrittenTensor((_words(one.inputs, one), one.outputs), word),
        "qzeros": WrittenTensor((one.groups, _words(one.outputs, one)), word),
        "scales": WrittenTensor((one.groups, one.outputs), FLOATS),
        "g_idx": WrittenTensor((one.inputs,), ("I32",)),
    }


def awq_tensors(one: PackedLinear) -> dict[str, WrittenTensor]:
    """AWQ's gemm: the outputs are packed."""
    word, width = (f"I{one.word}",), _words(one.outputs, one)
    return {
        "qweight": WrittenTensor((one.inputs, width), word),
        "qzeros": WrittenTensor((one.groups, width), word),
        "scales": WrittenTensor((one.groups, one.outputs), FLOATS),
    }


def marlin_tensors(one: PackedLinear, weight: str, scales: str) -> dict[str, WrittenTensor]:
    """Marlin: 16 inputs in a row of words. What else stands there may be empty."""
    packed: Shape = (one.inputs // TILE, one.outputs * TILE * one.bits // one.word)
    return {
        weight: WrittenTensor(packed, (f"I{one.word}",)),
        scales: WrittenTensor((one.groups, one.outputs), _HALVES),
    }


def _words(numbers: int, one: PackedLinear) -> int:
    return -(-numbers * one.bits // one.word)
