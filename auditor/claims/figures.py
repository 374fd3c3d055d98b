"""Figures in people's notation, 110M, 8x7B, 72.1 MB, 3.8亿, 30B-A3B, and ways to read them."""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal

from msgspec import Struct

from auditor.tensors import DTYPE_BITS

_SCALES = {
    "": 1,
    "k": 10**3,
    "thousand": 10**3,
    "千": 10**3,
    "万": 10**4,
    "萬": 10**4,
    "m": 10**6,
    "mn": 10**6,
    "mio": 10**6,
    "million": 10**6,
    "百万": 10**6,
    "百萬": 10**6,
    "千万": 10**7,
    "千萬": 10**7,
    "亿": 10**8,
    "億": 10**8,
    "b": 10**9,
    "bn": 10**9,
    "g": 10**9,
    "billion": 10**9,
    "十亿": 10**9,
    "十億": 10**9,
    "百亿": 10**10,
    "千亿": 10**11,
    "t": 10**12,
    "trillion": 10**12,
    "万亿": 10**12,
    "兆": 10**12,
}
_BYTES = {
    "bytes": 1,
    "byte": 1,
    "字节": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_FIGURE = re.compile(
    r"""(?:[~≈<>]|about|around|approx\.?|some|约|大约)?\s*
        (?:(?P<experts>[1-9]\d{0,3})\s*[x\u00d7]\s*)?
        (?P<number>\d{1,3}(?:[,_' ]\d{3})+|\d{1,30})(?P<fraction>\.\d{1,12})?
        \s*(?P<unit>[a-z]{0,8}|[百千十万萬亿億兆字节]{0,3})
        \s*(?:-?a(?P<active>\d{1,4}(?:\.\d{1,3})?)b)?
        \s*(?:params?|parameters?|elements?|个?参数)?\.?""",
    re.IGNORECASE | re.VERBOSE,
)
_WIDEST = 10  # a figure that ends in zeros is rounded to a tenth: 100M is 90 to 110
_ROUND = 6  # zeros at the end of a number that was not counted


class Figure(Struct, frozen=True, kw_only=True):
    """A number as written, and the numbers that round to it."""

    text: str
    value: int
    low: int  # the least number that rounds to it
    high: int  # the greatest number that rounds to it
    scale: int = 1  # a million for 110M
    unit: Literal["parameters", "bytes"] = "parameters"
    experts: int | None = None  # 8 of 8x7B; 7B is the model with one expert
    active: "Figure | None" = None  # of 30B-A3B

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def binary(self, base: int) -> tuple[int, int]:
        """Return the numbers that round to it if its million or billion is 2^20 or 2^30."""
        more = Fraction(base, 10**6 if base == 2**20 else 10**9)
        if self.exact:
            half = Fraction(1, 2)
            low, high = (self.value - half) * more, (self.value + half) * more
            return -int(-low // 1), int(high // 1)
        return -int(-(self.low * more) // 1), int(self.high * more // 1)


def parse_figure(text: str) -> Figure | None:
    """Return the figure in a text; None if it is not one."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"].lower()
    in_bytes = unit in _BYTES
    if not in_bytes and unit not in _SCALES:
        return None
    scale = _BYTES[unit] if in_bytes else _SCALES[unit]
    digits = re.sub(r"[,_' ]", "", match["number"])
    fraction = match["fraction"] or ""
    value = Fraction(digits + fraction) * scale
    low, high = _rounding(value, digits, fraction, scale)
    active = match["active"]
    return Figure(
        text=text.strip(),
        value=round(value),
        low=low,
        high=high,
        scale=scale,
        unit="bytes" if in_bytes else "parameters",
        experts=int(match["experts"]) if match["experts"] else None,
        active=parse_figure(f"{active}B") if active else None,
    )


def _rounding(value: Fraction, digits: str, fraction: str, scale: int) -> tuple[int, int]:
    """Return the numbers that round to a value: within half a unit of its last digit."""
    zeros = 0 if fraction else len(digits) - len(digits.rstrip("0"))
    if scale == 1 and not fraction and zeros < _ROUND:
        return int(value), int(value)
    unit = Fraction(scale, 10 ** len(fraction[1:])) if fraction else Fraction(scale)
    if scale == 1:
        unit = Fraction(10**zeros)
    half = unit / 2
    if zeros and scale > 1:
        half = max(half, min(half * 10**zeros, value / _WIDEST))
    return -int(-(value - half) // 1), int((value + half) // 1)


# --- ways to read one -----------------------------------------------------------------------------

MILLION, BILLION = 2**20, 2**30
Fields = tuple[tuple[str, Any], ...]


class Way(Struct, frozen=True, kw_only=True):
    """A way to read the number, with the counts of parameters that it then means."""

    low: int
    high: int
    slips: tuple[tuple[str, Fields], ...] = ()  # the slips that read it so
    bits: int = 8  # of a parameter if bytes are counted; 8 if parameters are
    base: int | None = None  # the value of its million or billion
    rarity: float = 0.0

    def read(self, slip: str, count: int) -> int:
        """Return the count under one of the slips."""
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
