"""Counts for other values of one config key, without building a model for each value.

A count is a polynomial of degree at most two in each key: V*D + N*(12*D^2 + 13*D). Three models
determine it. For a key that is rounded or selects a structure, the count is
not a polynomial, so each value that a curve yields is built and counted before it is reported.
Only likely values are tried, such as those that published models have.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import lcm

from msgspec import Struct

from auditor.claims.candidates import CountedCells

_TRIED = 8  # the most values of a key to try until three models are built

Build = Callable[[int], CountedCells | None]


class ValueHit(Struct, frozen=True, kw_only=True):
    """A value of the key with which the count is the claimed one."""

    value: int
    counted: CountedCells


class Curve:
    """The count of a part as a function of one key."""

    def __init__(self, counted: CountedCells, value: int, build: Build) -> None:
        self._build = build
        self._points: list[tuple[int, CountedCells]] = [(value, counted)]
        self._value = value

    def measure(self, likely: Sequence[int]) -> bool:
        """Count models with other values until two have equal cells; return whether two do."""
        own = self._value
        alike = {own * 2, own * 4, own // 2, own // 4}  # heads divide these values, too
        near = sorted(likely, key=lambda other: (other not in alike, abs(other - own)))
        names = [cell.name for cell in self._points[0][1].cells]
        for other in near[:_TRIED]:
            counted = self._build(other)
            if counted is not None and [cell.name for cell in counted.cells] == names:
                self._points.append((other, counted))
            if len(self._points) == 3:  # noqa: PLR2004 - a polynomial of the second degree
                return True
        return False

    def hits(self, low: int, high: int, values: Sequence[int]) -> Iterator[ValueHit]:
        """Yield the values for which the count lies between `low` and `high`."""
        a, b, c, d = self._polynomial()
        for value in values:
            if low * d <= (a * value + b) * value + c <= high * d:
                yield from self._verified(value, low, high)

    def _verified(self, value: int, low: int, high: int) -> Iterator[ValueHit]:
        counted = self._build(value)
        if counted is None or len(counted.cells) != len(self._points[0][1].cells):
            return
        if low <= counted.total <= high:
            yield ValueHit(value=value, counted=counted)

    def _polynomial(self) -> tuple[int, int, int, int]:
        """Return a, b, c, d of the polynomial (a*x^2 + b*x + c) / d through the three points."""
        (x, p), (y, q), (z, r) = ((at, counted.total) for at, counted in self._points)
        below = ((x - y) * (x - z), (y - x) * (y - z), (z - x) * (z - y))
        d = lcm(*below)
        u, v, w = (value * (d // under) for value, under in zip((p, q, r), below, strict=True))
        a = u + v + w
        b = -(u * (y + z) + v * (x + z) + w * (x + y))
        c = u * y * z + v * x * z + w * x * y
        return a, b, c, d


# --- likely values --------------------------------------------------------------------------------

# Another vocabulary is the most common other value in a wrong count: 21128 for 30522.
# Vocabularies of published models: BERT, GPT-2, RoBERTa, T5, Llama, Qwen, Gemma, DeepSeek, others.
_VOCABULARIES = (
    *(21128, 28996, 30000, 30522, 31002, 31090, 32000, 32001, 32003, 32064, 32100, 32102, 32128),
    *(32768, 32256, 35000, 40478, 42384, 49152, 49408, 50005, 50257, 50264, 50265, 50272, 50280),
    *(50288, 50295, 50304, 50368, 50400, 50432, 51200, 51864, 51865, 51866, 52000, 64000, 64001),
    *(65024, 65536, 92544, 100277, 100352, 102400, 103168, 105879, 119547, 119548, 125696, 128000),
    *(128100, 128112, 128256, 128512, 129280, 130528, 131072, 151552, 151643, 151936, 152064),
    *(163840, 201088, 200019, 248320, 250002, 250112, 250680, 250880, 251000, 255029, 256000),
    *(256008, 256128, 256206, 257152, 262144, 262208),
)
_WIDTHS = (
    *(32, 64, 96, 128, 144, 160, 192, 216, 256, 288, 312, 320, 384, 448, 480, 512, 576, 640, 672),
    *(704, 720, 768, 896, 960, 1024, 1088, 1152, 1280, 1408, 1472, 1536, 1600, 1664, 1792, 1920),
    *(2048, 2304, 2560, 2688, 2816, 2880, 3072, 3200, 3328, 3584, 3840, 4096, 4544, 4608, 5120),
    *(5376, 5632, 6144, 6656, 7168, 8192, 9216, 10240, 12288, 14336, 14848, 16384),
)
_FEED_FORWARDS = (
    *(1408, 2736, 4864, 5440, 5504, 5632, 6912, 7680, 8960, 9728, 10944, 11008, 12288, 13440),
    *(13696, 13824, 14336, 15360, 16384, 17408, 17920, 18432, 18944, 21504, 22016, 24576, 25600),
    *(27392, 27648, 28672, 29568, 32768, 36864, 49152, 53248),
)
_LENGTHS = (
    *(16, 32, 40, 50, 64, 77, 128, 130, 197, 250, 256, 257, 258, 384, 448, 500, 510, 512, 513),
    *(514, 577, 768, 1024, 1026, 1500, 2048, 2050, 4096, 4098, 8192, 16384, 32768, 65536, 131072),
)
_LAYERS = range(97)
_MOST = 100  # values of one key that are tried


def likely_values(key: str, value: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return other likely values for a key, in ascending order; `sizes` maps all keys to values."""
    last = key.rpartition(".")[2]
    near = {value * 2, value // 2, value * 4, value // 4}
    values = {*_of_kind(last, value, sizes), *(number for number in near if number > 0)}
    return tuple(sorted(values - {value}))[:_MOST]


def _of_kind(  # noqa: PLR0911 - one for each kind of key
    last: str, value: int, sizes: Mapping[str, int]
) -> tuple[int, ...]:
    widths = [size for key, size in sizes.items() if re.search(r"hidden_size$|d_model|n_embd", key)]
    if "vocab" in last and "type" not in last:
        return _VOCABULARIES
    if re.search(r"type_vocab", last):
        return tuple(range(1, 17))
    if re.search(r"(^|_)layers?$|^n_layer|depth", last):
        return tuple(_LAYERS[1:])
    if re.search(r"position|n_ctx|^n_positions|length", last):
        return _LENGTHS
    if re.search(r"intermediate|ffn|d_ff|n_inner|mlp_dim|hidden_dim", last):
        multiples = tuple(width * times for width in widths[:2] for times in (1, 2, 3, 4, 6, 8))
        return (*multiples, *_FEED_FORWARDS, *_WIDTHS)[:_MOST]
    if re.search(r"labels", last):
        return (*range(1, 21), 77, 100, 1000, 1001, 21841, 21843)
    if re.search(r"heads|groups|n_head|experts", last):
        return (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 60, 64, 96, 128, 256)
    if re.search(r"size$|dim$|width|d_model|n_embd|rank", last) and value > 16:  # noqa: PLR2004
        return _WIDTHS
    return tuple(range(1, 33))
