"""Ways to read a number that somebody wrote: as parameters, as bytes, with millions of 2^20."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from auditor.claims.figures import Figure
from auditor.tensors import DTYPE_BITS

MILLION, BILLION = 2**20, 2**30
Fields = tuple[tuple[str, Any], ...]


class Way(Struct, frozen=True, kw_only=True):
    """A way to read the number, and which counts of parameters it then stands for."""

    low: int
    high: int
    slips: tuple[tuple[str, Fields], ...] = ()  # that read it so
    bits: int = 8  # of a parameter, in bytes; 8 where parameters are counted
    base: int | None = None  # what stands for a million or a billion
    rarity: float = 0.0

    def read(self, slip: str, count: int) -> int:
        """What becomes of a count under one of the slips."""
        if slip == "bytes-for-parameters":
            return count * self.bits // 8
        decimal = 10**6 if self.base == MILLION else 10**9
        return round(count * decimal / (self.base or decimal))


def ways(figure: Figure, dtype: str | None) -> Iterator[Way]:
    """The ways to read a figure, the plain one first; `dtype` is the model's."""
    if figure.unit == "bytes":
        yield from _of_bytes(figure, dtype or "F32")
        return
    yield Way(low=figure.low, high=figure.high)
    widths: set[int] = set()
    for each in dict.fromkeys(filter(None, (dtype, "F32", "BF16"))):
        bits = DTYPE_BITS[each]
        low, high = -(-figure.low * 8 // bits), figure.high * 8 // bits
        if low <= high and bits != 8 and bits not in widths:  # noqa: PLR2004 - a byte is a byte
            widths.add(bits)
            slip = ("bytes-for-parameters", (("dtype", each),))
            yield Way(low=low, high=high, slips=(slip,), bits=bits, rarity=2.5)
    for base in _bases(figure):
        low, high = figure.binary(base)
        yield Way(low=low, high=high, slips=(_binary(base),), base=base, rarity=2.4)


def _of_bytes(figure: Figure, dtype: str) -> Iterator[Way]:
    bits = DTYPE_BITS[dtype]
    low, high = -(-figure.low * 8 // bits), figure.high * 8 // bits
    yield Way(low=low, high=high, bits=bits)
    called = ("bytes-for-parameters", (("dtype", dtype),))
    yield Way(low=figure.low, high=figure.high, slips=(called,), rarity=2.5)
    for base in _bases(figure):
        low, high = figure.binary(base)
        slips = (called, _binary(base))
        yield Way(low=low, high=high, slips=slips, base=base, rarity=4.0)


def _binary(base: int) -> tuple[str, Fields]:
    return "binary-million", (("base", base),)


def _bases(figure: Figure) -> tuple[int, ...]:
    if figure.scale >= 10**9:
        return (BILLION,)
    return (MILLION,) if figure.scale >= 10**6 else (MILLION, BILLION)
