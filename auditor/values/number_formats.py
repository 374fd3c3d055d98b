"""The numbers that the bits of each dtype encode, and the patterns of NaN, Inf and zero.

Floats of sign, exponent and mantissa sort by their bits: without the sign, the larger pattern is
the larger number, Inf lies above all finite numbers and NaN above Inf. So the largest pattern of a
block shows whether the block has a number that is not finite, and one that is not zero. Finding it
takes two maxima and no decoding: one over the words as unsigned integers (the negative float
of the largest magnitude, if any) and one over the words as signed integers (the largest positive
float).

    dtype         word  sign and rest      Inf     NaN            zero
    F64, F32, F16, BF16  as IEEE 754 has them, BF16 as the upper half of F32
    F8_E5M2       8     1 + 5 + 2, bias 15  0x7c    0x7d to 0x7f   0x00, 0x80
    F8_E4M3       8     1 + 4 + 3, bias 7   none    0x7f           0x00, 0x80
    F8_E5M2FNUZ   8     1 + 5 + 2, bias 16  none    0x80           0x00
    F8_E4M3FNUZ   8     1 + 4 + 3, bias 8   none    0x80           0x00
    F8_E8M0       8     2**(byte - 127)     none    0xff           none
    F6_E2M3       6     1 + 2 + 3, bias 1   none    none           0x00, 0x20
    F6_E3M2       6     1 + 3 + 2, bias 3   none    none           0x00, 0x20
    F4            4     1 + 2 + 1, bias 1   none    none           0x0, 0x8

Numbers of less than eight bits are packed from the lowest bit of a byte up (OCP Microscaling
Formats, version 1.0). Tests compare the values of the 8-bit formats with torch's.
"""

from collections.abc import Callable, Mapping
from functools import cache
from math import inf, nan
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from auditor.containers.gguf import GGML_TYPES, GgmlType

Bytes = NDArray[np.uint8]
Numbers = NDArray[Any]


class NumberFormat(Struct, frozen=True, kw_only=True):
    """A dtype: `unit` bytes contain `per_unit` numbers; blocks are cut at multiples of `unit`."""

    word: np.dtype[Any]  # the unsigned dtype as which the bytes are viewed
    unit: int
    per_unit: int = 1
    number: np.dtype[Any] | None = None  # numpy's dtype; None: by table, or widened
    magnitude: int | None = None  # every bit but the sign; None: words do not sort
    fault_from: int | None = None  # magnitudes from this pattern on are not finite
    has_inf: bool = False  # whether the pattern `fault_from` is Inf; all others are NaN
    table: NDArray[np.float64] | None = None  # pattern -> number, for 8 bits or less

    @property
    def is_float(self) -> bool:
        return self.fault_from is not None or self.table is not None

    def patterns(self, data: Bytes) -> Numbers:
        """Return the bit patterns, one word for each number."""
        if self.unit == self.per_unit or self.table is None or self.per_unit == 1:
            return data.view(self.word)
        return _four_bits(data) if self.per_unit == 2 else _six_bits(data)  # noqa: PLR2004

    def decode(self, data: Bytes) -> Numbers:
        """Return the numbers in float32, or in a wider type if float32 would lose digits."""
        patterns = self.patterns(data)
        if self.table is not None:
            return self.table[patterns]
        if self.number is None:  # BF16: the upper half of a float32
            return (patterns.astype(np.uint32) << 16).view(np.float32)
        if self.number == np.float16:
            return _halves()[patterns]
        return patterns.view(self.number)

    def pattern_value(self, pattern: int) -> float:
        """Return the number that a bit pattern encodes."""
        if self.table is not None:
            return float(self.table[pattern])
        return float(self.decode(np.array([pattern], self.word).view(np.uint8))[0])


@cache
def _halves() -> NDArray[np.float32]:
    """Return the values of all float16 patterns: a table is 8 times as fast as numpy's cast."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def _small(exponent: int, mantissa: int, bias: int) -> NDArray[np.float64]:
    """Return the values of all patterns of a small float with these bits of exponent and mantissa.

    (-1)**s * 2**(e - bias) * (1 + m / 2**mantissa); 2**(1 - bias) * m / 2**mantissa at e = 0.
    """
    count = 1 << (1 + exponent + mantissa)
    numbers = np.empty(count)
    for pattern in range(count):
        m = pattern & ((1 << mantissa) - 1)
        e = (pattern >> mantissa) & ((1 << exponent) - 1)
        fraction = m / (1 << mantissa)
        value = 2.0 ** (e - bias) * (1 + fraction) if e else 2.0 ** (1 - bias) * fraction
        numbers[pattern] = -value if pattern >= count // 2 else value
    return numbers


def _with(table: NDArray[np.float64], values: Mapping[int, float]) -> NDArray[np.float64]:
    for pattern, value in values.items():
        table[pattern] = value
    return table


_E5M2 = {0x7C: inf, 0xFC: -inf} | dict.fromkeys((0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF), nan)
_TABLES = {
    "F8_E5M2": _with(_small(5, 2, 15), _E5M2),
    "F8_E4M3": _with(_small(4, 3, 7), {0x7F: nan, 0xFF: nan}),
    "F8_E5M2FNUZ": _with(_small(5, 2, 16), {0x80: nan}),
    "F8_E4M3FNUZ": _with(_small(4, 3, 8), {0x80: nan}),
    "F8_E8M0": _with(2.0 ** (np.arange(256.0) - 127), {0xFF: nan}),
    "F6_E2M3": _small(2, 3, 1),
    "F6_E3M2": _small(3, 2, 3),
    "F4": _small(2, 1, 1),
}


def _four_bits(data: Bytes) -> Bytes:
    patterns = np.empty(2 * len(data), np.uint8)
    patterns[0::2], patterns[1::2] = data & 15, data >> 4
    return patterns


def _six_bits(data: Bytes) -> Bytes:
    """Cut three bytes into four numbers, from the lowest bit up."""
    first, second, third = data[0::3], data[1::3], data[2::3]
    patterns = np.empty(4 * len(first), np.uint8)
    patterns[0::4] = first & 63
    patterns[1::4] = (first >> 6) | ((second & 15) << 2)
    patterns[2::4] = (second >> 4) | ((third & 3) << 4)
    patterns[3::4] = third >> 2
    return patterns


def _ieee(bits: int, infinite: int, number: str | None) -> NumberFormat:
    return NumberFormat(
        word=np.dtype(f"<u{bits // 8}"),
        unit=bits // 8,
        number=np.dtype(number) if number else None,
        magnitude=(1 << (bits - 1)) - 1,
        fault_from=infinite,
        has_inf=True,
    )


def _table(name: str) -> NumberFormat:
    unit, per_unit = {"F4": (1, 2), "F6_E2M3": (3, 4), "F6_E3M2": (3, 4)}.get(name, (1, 1))
    fault_from = {"F8_E5M2": 0x7C, "F8_E4M3": 0x7F}.get(name)
    return NumberFormat(
        word=np.dtype(np.uint8),
        unit=unit,
        per_unit=per_unit,
        magnitude=None if fault_from is None else 0x7F,
        fault_from=fault_from,
        has_inf=name == "F8_E5M2",
        table=_TABLES[name],
    )


def _integer(bits: int, kind: str) -> NumberFormat:
    width = bits // 8
    return NumberFormat(word=np.dtype(f"<u{width}"), unit=width, number=np.dtype(f"<{kind}{width}"))


_F32, _F64 = _ieee(32, 0x7F80_0000, "<f4"), _ieee(64, 0x7FF0_0000_0000_0000, "<f8")
_F16 = _ieee(16, 0x7C00, "<f2")

# The dtypes of safetensors, then dtypes that only torch has. A complex number counts as two.
FORMATS: Mapping[str, NumberFormat] = MappingProxyType(
    {name: _table(name) for name in _TABLES}
    | {f"I{bits}": _integer(bits, "i") for bits in (8, 16, 32, 64)}
    | {f"U{bits}": _integer(bits, "u") for bits in (8, 16, 32, 64)}
    | {"F64": _F64, "F32": _F32, "F16": _F16, "BF16": _ieee(16, 0x7F80, None)}
    | {"C64": _F32, "C128": _F64, "C32": _F16, "BOOL": _integer(8, "u")}
    | {"QINT8": _integer(8, "i"), "QUINT8": _integer(8, "u"), "QINT32": _integer(32, "i")}
)


class BlockScales(Struct, frozen=True, kw_only=True):
    """The scales in each block of a GGUF tensor."""

    size: int  # bytes of a block
    dtype: str  # of the scales
    at: tuple[int, ...]  # their byte offsets in a block


# The block structs of ggml-common.h: d, and m or dmin if a type has it. IQ1_M, which spreads its
# scale over the bits of other fields, and Q8_1, which no file stores, are not read.
_OFFSETS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q8_K": (0,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ1_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (0,),
    "Q1_0": (0,),
}
_OTHER_DTYPES = {"Q8_K": "F32", "MXFP4": "F8_E8M0"}
SIZES: Mapping[str, GgmlType] = {kind.name: kind for kind in GGML_TYPES.values()}
BLOCKS: Mapping[str, BlockScales] = {
    name: BlockScales(size=SIZES[name].size, dtype=_OTHER_DTYPES.get(name, "F16"), at=at)
    for name, at in _OFFSETS.items()
}

# --- blocks of GGUF -----------------------------------------------------------------------------

# By the structs of ggml-common.h and ggml-quants.c:
#
#     type  numbers  bytes  content
#     Q4_0  32       18     d F16, 16 bytes q;                        d * (q - 8)
#     Q4_1  32       20     d, m F16, 16 bytes q;                     d * q + m
#     Q8_0  32       34     d F16, 32 I8 q;                           d * q
#     Q4_K  256      144    d, e F16, 12 bytes s, 128 bytes q;        d * s * q - e * m
#     Q5_K  256      176    d, e F16, 12 bytes s, 32 bytes high, 128 bytes q; likewise
#     Q6_K  256      210    128 bytes low, 64 bytes high, 16 I8 s, d F16;     d * s * (q - 32)
#
# The low four bits of the bytes q are numbers of the first half, the high four bits of the second;
# in K types of each 64 numbers. The 12 bytes s have eight scales s and eight minima m of six bits.


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
