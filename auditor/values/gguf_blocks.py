"""The numbers in blocks of GGUF, by the structs of ggml-common.h and ggml-quants.c.

    type  numbers  bytes  content
    Q4_0  32       18     d F16, 16 bytes q;                        d * (q - 8)
    Q4_1  32       20     d, m F16, 16 bytes q;                     d * q + m
    Q8_0  32       34     d F16, 32 I8 q;                           d * q
    Q4_K  256      144    d, e F16, 12 bytes s, 128 bytes q;        d * s * q - e * m
    Q5_K  256      176    d, e F16, 12 bytes s, 32 bytes high, 128 bytes q; likewise
    Q6_K  256      210    128 bytes low, 64 bytes high, 16 I8 s, d F16;     d * s * (q - 32)

The low four bits of the bytes q are numbers of the first half, the high four bits of the second; in
K types of each 64 numbers. The 12 bytes s have eight scales s and eight minima m of six bits.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auditor.containers.gguf import GGML_TYPES, GgmlType

Numbers = NDArray[Any]


# The numbers and bytes of a block, by type.
SIZES: Mapping[str, GgmlType] = {kind.name: kind for kind in GGML_TYPES.values()}


def _half(blocks: Numbers, at: int) -> Numbers:
    """Return the F16 at a byte of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float64)


def _bits(data: Numbers, width: int, bits: int) -> Numbers:
    """Return the fields of `bits` bits, for each run of `width` bytes the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    runs = data.reshape(len(data), -1, 1, width) >> shifts
    return (runs & np.uint8((1 << bits) - 1)).reshape(len(data), -1)


def _q4_0(blocks: Numbers) -> Numbers:
    return _half(blocks, 0) * (_bits(blocks[:, 2:], 16, 4).astype(np.float64) - 8)


def _q4_1(blocks: Numbers) -> Numbers:
    return _half(blocks, 0) * _bits(blocks[:, 4:], 16, 4) + _half(blocks, 2)


def _q8_0(blocks: Numbers) -> Numbers:
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)


def _scaled(blocks: Numbers, codes: Numbers) -> Numbers:
    """Return the numbers of Q4_K and Q5_K: eight groups of 32, each with a scale and a minimum."""
    low, middle, high = np.split(blocks[:, 4:16], 3, axis=1)
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 2) & 48)], axis=1)
    factors, offsets = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    groups = codes.reshape(len(blocks), 8, 32)
    numbers = factors[..., None] * groups - offsets[..., None]
    return np.asarray(numbers.reshape(len(blocks), -1))


def _q4_k(blocks: Numbers) -> Numbers:
    return _scaled(blocks, _bits(blocks[:, 16:], 32, 4))


def _q5_k(blocks: Numbers) -> Numbers:
    high = _bits(blocks[:, 16:48], 32, 1)
    return _scaled(blocks, _bits(blocks[:, 48:], 32, 4) | (high << 4))


def _q6_k(blocks: Numbers) -> Numbers:
    codes = _bits(blocks[:, :128], 64, 4) | (_bits(blocks[:, 128:192], 32, 2) << 4)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8) * _half(blocks, 208)
    groups = codes.reshape(len(blocks), 16, 16).astype(np.float64) - 32
    return np.asarray((scales[..., None] * groups).reshape(len(blocks), -1))


# Functions from blocks (n, bytes) to numbers.
BLOCK_TYPES: Mapping[str, Callable[[Numbers], Numbers]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
