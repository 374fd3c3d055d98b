"""Parse published numbers such as 110M, 8x7B, 72.1 MB, 1亿零951万, 1.1e8; list their meanings."""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

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
        (?P<number>\d{1,3}(?:[,_' ]\d{3})+|\d{1,3}(?:\.\d{3}){2,}|\d{1,30})(?P<fraction>\.\d{1,12})?
        (?:e\+?(?P<power>\d{1,2}))?
        \s*(?P<unit>%|[a-z]{0,8}|[百千十万萬亿億兆字节]{0,3})
        \s*(?:-?a(?P<active>\d{1,4}(?:\.\d{1,3})?)b)?
        \s*(?:params?|parameters?|elements?|个?参数|个)?\.?""",
    re.IGNORECASE | re.VERBOSE,
)
_WHOLE = 10**12  # the value of a share that is the whole model
_SHARES = {"share": _WHOLE, "%": _WHOLE // 100}
_NUMERALS = {numeral: digit for digit, numeral in enumerate("零一二三四五六七八九")} | {
    "\u3007": 0,
    "两": 2,
}
_TENS = {"十": 10, "百": 100, "千": 1000}
_MIXED = re.compile(r"([\d零一二三四五六七八九\u3007两十百千万萬亿億]{1,40})((?:个?参数|个)?)")
_NUMERAL, _LARGE_UNIT = re.compile(r"[零一二三四五六七八九\u3007两]"), re.compile(r"[万萬亿億]")
_WIDEST = 10  # a figure that ends in zeros is rounded to a tenth: 100M is 90 to 110
_ROUND = 6  # zeros at the end of a number that was not counted


class Figure(Struct, frozen=True, kw_only=True):
    """A published number as written, and the range of numbers that round to it."""

    text: str
    value: int
    low: int  # the least number that rounds to it
    high: int  # the greatest number that rounds to it
    scale: int = 1  # a million for 110M
    last_digit: int = 1  # the value of a step in its last digit: 10^5 for 72.1M
    unit: Literal["parameters", "bytes"] = "parameters"
    is_share: bool = False  # a share of the model, in units of 10^-12
    experts: int | None = None  # 8 of 8x7B; 7B is the model with one expert
    active: "Figure | None" = None  # 3B in 30B-A3B

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def digits(self) -> int:
        """The number of significant digits: 3 of 72.1M, 8 of 109,482,240."""
        return len(str(self.value // self.last_digit).rstrip("0"))


def parse_figure(text: str, *, chinese: bool = False) -> Figure | None:
    """Return the figure that a text states; None if the text is not a figure.

    A number with a fraction and no unit is a share if below 1; from 1 on, in a Chinese text, it
    is a number of 亿.
    """
    plain = unicodedata.normalize("NFKC", text).strip()
    match = _FIGURE.fullmatch(_without_numerals(plain))
    if match is None:
        return None
    unit, power = match["unit"].lower(), match["power"]
    digits, fraction = re.sub(r"[,_' .]", "", match["number"]), match["fraction"] or ""
    if fraction and not unit and not power:
        unit = "share" if not int(digits) else "亿" if chinese else "?"
    if unit not in {*_BYTES, *_SCALES, *_SHARES}:
        return None
    scale = {**_BYTES, **_SCALES, **_SHARES}[unit] * 10 ** int(power or 0)
    value = Fraction(digits + fraction) * scale
    low, high = _rounding(value, digits, fraction, scale)
    active = match["active"]
    return Figure(
        text=text.strip(),
        value=round(value),
        low=low,
        high=high,
        scale=scale,
        last_digit=max(1, int(_last_digit(digits, fraction, scale))),
        unit="bytes" if unit in _BYTES else "parameters",
        is_share=unit in _SHARES,
        experts=int(match["experts"]) if match["experts"] else None,
        active=parse_figure(f"{active}B") if active else None,
    )


def share_of(figure: Figure, total: int) -> Figure:
    """Convert a share of a total, such as 21.77 %, into the figure of a count."""

    def of_total(share: int) -> Fraction:
        return Fraction(share * total, _WHOLE)

    return replace(
        figure,
        value=round(of_total(figure.value)),
        low=-int(-of_total(figure.low) // 1),
        high=int(of_total(figure.high) // 1),
        is_share=False,
    )


def _without_numerals(text: str) -> str:
    """Replace Chinese numerals by digits: 一亿一千万 is 110000000, 1亿零951万4298 is 109514298.

    A number with one unit and no numeral stays unchanged, because its digits show its rounding.
    """
    match = _MIXED.fullmatch(text)
    if match is None or not (_NUMERAL.search(text) or len(_LARGE_UNIT.findall(match[1])) > 1):
        return text
    total = section = 0
    number = 0
    for token in re.findall(r"\d+|.", match[1]):
        if token.isdecimal():
            number = int(token)
        elif token in _NUMERALS:
            number = _NUMERALS[token]
        elif token in _TENS:
            section, number = section + (number or 1) * _TENS[token], 0
        else:
            section, number = section + number, 0
            unit = _SCALES[token]
            total, section = (total + section) * unit if unit > total else total + section * unit, 0
    return f"{total + section + number}{match[2]}"


def _rounding(value: Fraction, digits: str, fraction: str, scale: int) -> tuple[int, int]:
    """Return the least and the greatest number that round to a value."""
    zeros = 0 if fraction else len(digits) - len(digits.rstrip("0"))
    if scale == 1 and not fraction and zeros < _ROUND:
        return int(value), int(value)
    half = _last_digit(digits, fraction, scale) / 2
    if zeros and scale > 1:
        half = max(half, min(half * 10**zeros, value / _WIDEST))
    return -int(-(value - half) // 1), int((value + half) // 1)


def _last_digit(digits: str, fraction: str, scale: int) -> Fraction:
    """Return the unit of the last digit: 10^5 for 72.1M."""
    if fraction:
        return Fraction(scale, 10 ** len(fraction[1:]))
    return Fraction(scale if scale > 1 else 10 ** (len(digits) - len(digits.rstrip("0"))))


# --- ways to read a figure -----------------------------------------------------------------------

MILLION, BILLION = 2**20, 2**30
Fields = tuple[tuple[str, Any], ...]
_FOUR_BITS = "4-bit"
_BITS = {**DTYPE_BITS, _FOUR_BITS: 4}


class Misreading(NamedTuple):
    """A slip in converting a count into the written number, which multiplies it by `ratio`."""

    slip: str
    fields: Fields
    ratio: Fraction


class Way(Struct, frozen=True, kw_only=True):
    """A way to read the written number: the range of parameter counts that it means.

    The number is a parameter count times `bits / 8`, changed by the misreadings `last`.
    """

    low: int
    high: int
    bits: int = 8  # bits of a parameter if the number counts bytes; 8 if parameters
    first: tuple[str, Fields] | None = None  # the slip that changes what is counted
    last: tuple[Misreading, ...] = ()  # slips that change the result of the count
    truncated: bool = False  # digits were cut off
    rarity: float = 0.0

    @property
    def slips(self) -> int:
        return (self.first is not None) + len(self.last) + self.truncated


def ways(figure: Figure, dtype: str | None) -> Iterator[Way]:
    """Yield the ways to read a figure, the literal one first; `dtype` is the model's."""
    own = dtype or "F32"
    if figure.unit == "bytes":
        yield from _of_bytes(figure, own)
        return
    yield Way(low=figure.low, high=figure.high)
    yield from _cut_off(figure, 8)
    for name, bits in _widths(own, "F32", "BF16", _FOUR_BITS):
        if bits != 8:  # noqa: PLR2004 - a byte is a byte
            bytes_read = Misreading("bytes-for-parameters", (("dtype", name),), Fraction(bits, 8))
            yield from _misread(figure, 8, bytes_read, rarity=2.5)
    for base in _bases(figure):
        yield from _misread(figure, 8, _binary(base), rarity=2.4)


def _of_bytes(figure: Figure, dtype: str) -> Iterator[Way]:
    (_, bits), *others = _widths(dtype, "F32", "BF16", "I8", _FOUR_BITS)
    yield Way(low=-(-figure.low * 8 // bits), high=figure.high * 8 // bits, bits=bits)
    yield from _cut_off(figure, bits)
    for base in _bases(figure):
        yield from _misread(figure, bits, _binary(base), rarity=1.5)
        yield from _misread(figure, bits, _decimal(base), rarity=1.6)
    for name, width in others:
        low, high = -(-figure.low * 8 // width), figure.high * 8 // width
        other_dtype = ("other-dtype", (("dtype", name),))
        yield Way(low=low, high=high, bits=width, first=other_dtype, rarity=2.0)
    called = ("bytes-for-parameters", (("dtype", dtype),))
    yield Way(low=figure.low, high=figure.high, first=called, rarity=2.5)
    for base in _bases(figure):
        yield from _misread(figure, 8, _binary(base), first=called, rarity=4.0)


def _widths(*dtypes: str) -> tuple[tuple[str, int], ...]:
    """Return one dtype for each width in bits, with the width."""
    names: dict[int, str] = {}
    for name in dtypes:
        names.setdefault(_BITS[name], name)
    return tuple((name, bits) for bits, name in names.items())


def _cut_off(figure: Figure, bits: int) -> Iterator[Way]:
    """Yield the way to read a figure whose digits were cut off: 1.23B for 1.236 billion."""
    above = figure.value + figure.last_digit - 1
    if above > figure.high:
        low, high = -(-(figure.high + 1) * 8 // bits), above * 8 // bits
        yield Way(low=low, high=high, bits=bits, truncated=True, rarity=1.0)


def _misread(
    figure: Figure,
    bits: int,
    misread: Misreading,
    *,
    first: tuple[str, Fields] | None = None,
    rarity: float,
) -> Iterator[Way]:
    """Yield the way to read a figure that is the true number times the ratio of `misread`."""
    low, high = Fraction(figure.low), Fraction(figure.high)
    if figure.exact and misread.slip != "bytes-for-parameters":
        low, high = low - Fraction(1, 2), high + Fraction(1, 2)  # the quotient was rounded
    bytes_of_one = misread.ratio * Fraction(bits, 8)
    least, most = -int(-(low / bytes_of_one) // 1), int(high / bytes_of_one // 1)
    if least <= most:
        yield Way(low=least, high=most, bits=bits, first=first, last=(misread,), rarity=rarity)


def _binary(base: int) -> Misreading:
    return Misreading("binary-million", (("base", base),), Fraction(_decimal_of(base), base))


def _decimal(base: int) -> Misreading:
    return Misreading("decimal-million", (("base", base),), Fraction(base, _decimal_of(base)))


def _decimal_of(base: int) -> int:
    return 10**6 if base == MILLION else 10**9


def _bases(figure: Figure) -> tuple[int, ...]:
    if figure.scale >= 10**9:
        return (BILLION,)
    return (MILLION,) if figure.scale >= 10**6 else (MILLION, BILLION)
