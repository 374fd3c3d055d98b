"""Parse published numbers such as 110M, 8x7B, 72.1 MB, 1亿零951万, 2,6 Mrd.; list meanings."""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.tensors import DTYPE_BITS

_POWERS = {
    0: ("",),
    3: ("k", "thousand", "千"),
    4: ("万", "萬", "만"),
    6: ("m", "mn", "mio", "million", "millions", "millionen", "百万", "百萬"),
    7: ("千万", "千萬"),
    8: ("亿", "億", "억"),
    9: ("b", "bn", "g", "billion", "billions", "mrd", "md", "milliarde", "milliarden", "milliard"),
    10: ("百亿",),
    11: ("千亿",),
    12: ("t", "tn", "trillion", "trillions", "万亿", "兆"),
}
_SCALES = {unit: 10**power for power, units in _POWERS.items() for unit in units} | {
    "milliards": 10**9,
    "十亿": 10**9,
    "十億": 10**9,
}
_COMMA_IS_DECIMAL = frozenset({"mio", "millionen", "mrd", "md"}) | {
    unit for unit in _SCALES if unit.startswith("milliard")
}
_BYTES = {"bytes": 1, "byte": 1, "字节": 1} | {
    f"{letter}{binary}b": (1024 if binary else 1000) ** power
    for power, letter in enumerate("kmgt", start=1)
    for binary in ("", "i")
}
_WHOLE = 10**12  # the value of a share that is the whole model
_SHARES = {"share": _WHOLE, "%": _WHOLE // 100, "percent": _WHOLE // 100}
_UNITS = {**_BYTES, **_SCALES, **_SHARES}
_LONGEST = 80  # characters of a figure
_FIGURE = re.compile(
    rf"""(?P<bound>[~≈<>]|about|around|approx\.?|some|ca\.?|over|under|约|大约|近|超过|不到)?\s*
        (?:(?P<experts>[1-9]\d{{0,3}})\s*[x\u00d7]\s*)?
        (?P<number>\d{{1,30}}(?:[.,_'\u2019 ]\d{{1,30}}){{0,12}})
        (?:\s*(?:e\+?|[x\u00d7*\u00b7]\s*10\s*(?:\^|\*\*))\s*(?P<power>\d{{1,2}}))?
        \s*(?P<unit>{"|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))})\.?
        (?P<more>\+|多|以上)?
        \s*(?:params?|parameters?|parameter|weights|elements?|个?参数|个|個|개)?\.?
        (?P<most>\+|以上)?""",
    re.IGNORECASE | re.VERBOSE,
)
_ACTIVE = re.compile(r"(?P<total>.*?)[\s-]*\bA(?P<active>\d{1,4}(?:\.\d{1,3})?[BM])", re.IGNORECASE)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_NUMERALS = {numeral: digit for digit, numeral in enumerate("零一二三四五六七八九")} | {
    "\u3007": 0,
    "两": 2,
}
_TENS = {"十": 10, "百": 100, "千": 1000}
_MIXED = re.compile(r"([\d零一二三四五六七八九\u3007两十百千万萬亿億]{1,40})((?:个?参数|个)?)")
_NUMERAL, _LARGE_UNIT = re.compile(r"[零一二三四五六七八九\u3007两]"), re.compile(r"[万萬亿億]")
_POINT = re.compile(r"([零一二三四五六七八九\u3007两])点([零一二三四五六七八九\u3007两]{1,9})")
_HAN = re.compile(r"[\u4e00-\u9fff]")
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
    reading: str = ""  # how the text is read, if it could be read otherwise

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def digits(self) -> int:
        """The number of significant digits: 3 of 72.1M, 9 of 109,482,240."""
        if self.exact:
            return len(str(self.value)) if self.value else _ROUND
        digits = str(self.value // self.last_digit)
        return len(digits if self.last_digit < self.scale else digits.rstrip("0")) or 1


def is_chinese(text: str) -> bool:
    return bool(_HAN.search(text))


def without_active(text: str) -> tuple[str, str]:
    """Split `30B-A3B` into the total and the active parameters; each may be empty."""
    match = _ACTIVE.fullmatch(text.strip()[:_LONGEST])
    return (match["total"].strip(), match["active"]) if match else (text, "")


def parse_figure(text: str, *, chinese: bool = False) -> Figure | None:
    """Return the likeliest figure that a text states; None if the text is not a figure."""
    return next(iter(parse_figures(text, chinese=chinese)), None)


def parse_figures(text: str, *, chinese: bool = False) -> tuple[Figure, ...]:
    """Return the figures that a text may state, the likeliest first; () if it is not a figure.

    A number with a fraction and no unit is a share if below 1; in a Chinese text it may be a
    number of 亿; else it is not a figure.
    """
    powers = re.sub(r"(?<=10)[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda found: f"^{found[0]}", text[: 2 * _LONGEST])
    plain = unicodedata.normalize("NFKC", powers.translate(_SUPERSCRIPTS)).strip()
    match = _FIGURE.fullmatch(_without_numerals(plain)) if len(plain) <= _LONGEST else None
    if match is None:
        return ()
    figures = [
        _figure(text, match, digits, fraction, unit)
        for digits, fraction in _numbers(match["number"], match["unit"].lower())
        for unit in _units(digits, fraction, match, chinese=chinese)
    ]
    is_plain = match["unit"] or match["power"] or match["number"].count(".") != 1
    if len(figures) == 1 and (is_plain or figures[0].is_share):
        return tuple(figures)
    return tuple(
        replace(
            figure,
            reading="a share of the model"
            if figure.is_share
            else f"{figure.value:,} {figure.unit}",
        )
        for figure in figures
    )


def _numbers(text: str, unit: str) -> tuple[tuple[str, str], ...]:
    """Return the possible digits before and after the decimal mark, the likeliest first.

    2,6 Mrd. is 2.6; 1,236B may be 1236 or 1.236; 109.514 without a unit may be 109514.
    """
    marks = re.findall(r"\D", text)
    first, *others = re.split(r"\D", text)
    if not marks:
        return ((text, ""),)
    *groups, last = others
    mark, kinds = marks[-1], len(set(marks))
    whole, decimal = ("".join((first, *others)), ""), ("".join((first, *groups)), last)
    in_threes = len(first) <= 3 and first != "0" and all(len(each) == 3 for each in groups)  # noqa: PLR2004
    may_be_decimal = mark in ".," and marks.count(mark) == 1 and kinds <= 2 and in_threes  # noqa: PLR2004
    may_be_whole = in_threes and len(last) == 3 and kinds == 1  # noqa: PLR2004
    if len(marks) == 1 and mark in ".,":
        in_german = unit in _COMMA_IS_DECIMAL
        may_be_decimal = mark == "." or in_german or bool(unit) or not may_be_whole
        may_be_whole &= not in_german if mark == "," else in_german or not unit
    readings = [decimal] * may_be_decimal + [whole] * may_be_whole
    return tuple(readings[::-1] if mark == "," else readings)


def _units(digits: str, fraction: str, match: re.Match[str], *, chinese: bool) -> tuple[str, ...]:
    """Return the units that a number may have, the likeliest first; () if it lacks one."""
    unit = match["unit"].lower()
    if unit == "g" and not match["experts"]:
        return ("g", "gb")
    if unit or not fraction or match["power"]:
        return (unit,)
    of_hundred_million = ("亿",) if chinese else ()
    return of_hundred_million if int(digits) else ("share", *of_hundred_million)


def _figure(text: str, match: re.Match[str], digits: str, fraction: str, unit: str) -> Figure:
    scale = _UNITS[unit] * 10 ** int(match["power"] or 0)
    value = Fraction(f"{digits}.{fraction or 0}") * scale
    low, high = _rounding(value, digits, fraction, scale)
    step = max(1, int(_last_digit(digits, fraction, scale)))
    bound = (match["bound"] or "").lower()
    if match["more"] or match["most"] or bound in {">", "over", "超过"}:
        low, high = round(value), round(value) + step  # 7B+ is 7 to 8 billion
    elif bound in {"<", "under", "近", "不到"}:
        low, high = round(value) - step, round(value)
    return Figure(
        text=text.strip(),
        value=round(value),
        low=low,
        high=high,
        scale=scale,
        last_digit=step,
        unit="bytes" if unit in _BYTES else "parameters",
        is_share=unit in _SHARES,
        experts=int(match["experts"]) if match["experts"] else None,
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
        scale=total,
        last_digit=max(1, int(of_total(figure.last_digit))),
        is_share=False,
    )


def _without_numerals(text: str) -> str:
    """Replace Chinese numerals by digits: 一亿一千万 is 110000000, 1亿零951万4298 is 109514298.

    A number with one unit and no numeral stays unchanged, because its digits show its rounding.
    """
    text = _POINT.sub(lambda found: f"{_digits(found[1])}.{_digits(found[2])}", text)
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


def _digits(numerals: str) -> str:
    return "".join(str(_NUMERALS[numeral]) for numeral in numerals)


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
        return Fraction(scale, 10 ** len(fraction))
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
    rounded_up: bool = False  # to the next step of the last digit
    cost: int = 0  # the number of significant digits that the slips in it need

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
            cost = 2 if bits < DTYPE_BITS["F32"] or name == own else 3
            yield from _misread(figure, 8, bytes_read, cost=cost)
    for base in _bases(figure) if figure.digits > 2 else ():  # noqa: PLR2004 - 7B is 7.5B, too
        yield from _misread(figure, 8, _million("binary-million", base), cost=2)


def _of_bytes(figure: Figure, dtype: str) -> Iterator[Way]:
    (_, bits), *others = _widths(dtype, "F32", "BF16", "I8", _FOUR_BITS)
    yield Way(low=-(-figure.low * 8 // bits), high=figure.high * 8 // bits, bits=bits)
    yield from _cut_off(figure, bits)
    for base in _bases(figure):
        for slip in ("binary-million", "decimal-million"):
            yield from _misread(figure, bits, _million(slip, base), cost=1)
    for name, width in others:
        low, high = -(-figure.low * 8 // width), figure.high * 8 // width
        other_dtype = ("other-dtype", (("dtype", name),))
        yield Way(low=low, high=high, bits=width, first=other_dtype, cost=2)
    called = ("bytes-for-parameters", (("dtype", dtype),))
    yield Way(low=figure.low, high=figure.high, first=called, cost=2)
    for base in _bases(figure):
        yield from _misread(figure, 8, _million("binary-million", base), first=called, cost=4)


def _widths(*dtypes: str) -> tuple[tuple[str, int], ...]:
    """Return one dtype for each width in bits, with the width."""
    names: dict[int, str] = {}
    for name in dtypes:
        names.setdefault(_BITS[name], name)
    return tuple((name, bits) for bits, name in names.items())


def _cut_off(figure: Figure, bits: int) -> Iterator[Way]:
    """Yield the ways to read a figure whose digits were cut off or rounded up.

    1.23B is cut off from 1.236 billion; 685B is rounded up from 684.49 billion.
    """
    above = figure.value + figure.last_digit - 1
    if above > figure.high:
        low, high = -(-(figure.high + 1) * 8 // bits), above * 8 // bits
        yield Way(low=low, high=high, bits=bits, truncated=True, cost=1)
        low, high = figure.value - figure.last_digit + 1, figure.low - 1
        yield Way(low=low * 8 // bits, high=high * 8 // bits, bits=bits, rounded_up=True)


def _misread(
    figure: Figure,
    bits: int,
    misread: Misreading,
    *,
    first: tuple[str, Fields] | None = None,
    cost: int,
) -> Iterator[Way]:
    """Yield the way to read a figure that is the true number times the ratio of `misread`."""
    low, high = Fraction(figure.low), Fraction(figure.high)
    if figure.exact and misread.slip != "bytes-for-parameters":
        low, high = low - Fraction(1, 2), high + Fraction(1, 2)  # the quotient was rounded
    bytes_of_one = misread.ratio * Fraction(bits, 8)
    least, most = -int(-(low / bytes_of_one) // 1), int(high / bytes_of_one // 1)
    if least <= most:
        yield Way(low=least, high=most, bits=bits, first=first, last=(misread,), cost=cost)


def _million(slip: str, base: int) -> Misreading:
    """Return the slip of dividing by 2^20 instead of a million (2^30: a billion), or reversed."""
    ratio = Fraction(10**6 if base == MILLION else 10**9, base)
    return Misreading(slip, (("base", base),), ratio if slip == "binary-million" else 1 / ratio)


def _bases(figure: Figure) -> tuple[int, ...]:
    if figure.scale >= 10**9:
        return (BILLION,)
    return (MILLION,) if figure.scale >= 10**6 else (MILLION, BILLION)
