"""Curves: what a count would be for other values of one config key, without building each.

A count is a polynomial in each key, of the second degree at the most: V*D + N*(12*D^2 + 13*D).
Three models tell it, and what each slip makes of it. Where a key rounds or decides on shapes, it is
none: whatever a curve finds is built, and counted, before it is said.
"""

from collections.abc import Callable, Iterator, Sequence
from math import isqrt, lcm

from msgspec import Struct

from auditor.claims.candidates import CountedCells, PossibleSlip

_TRIED = 8  # values of a key, to find three of which models can be built

Build = Callable[[int], CountedCells | None]


class ValueHit(Struct, frozen=True, kw_only=True):
    """A value of the key for which the count comes out, with at most one slip beside it."""

    value: int
    counted: CountedCells
    chosen: tuple[PossibleSlip, ...]


class Curve:
    """The count of a part by the values of one key."""

    def __init__(
        self, counted: CountedCells, found: Sequence[PossibleSlip], value: int, build: Build
    ) -> None:
        self._build = build
        self._candidates = found
        self._points: list[tuple[int, CountedCells]] = [(value, counted)]
        self._value = value

    def measure(self, likely: Sequence[int]) -> bool:
        """Build models of two more values; False where none can be built in the same form."""
        own = self._value
        alike = {own * 2, own * 4, own // 2, own // 4}  # heads share them evenly, layers alternate
        near = sorted(likely, key=lambda other: (other not in alike, abs(other - own)))
        names = [cell.name for cell in self._points[0][1].cells]
        for other in near[:_TRIED]:
            made = self._build(other)
            if made is not None and [cell.name for cell in made.cells] == names:
                self._points.append((other, made))
            if len(self._points) == 3:  # noqa: PLR2004 - a polynomial of the second degree
                return True
        return False

    def hits(
        self, low: int, high: int, values: Sequence[int], *, slips: bool
    ) -> Iterator[ValueHit]:
        """Those among the values for which the count lies between the two."""
        for chosen in ((), *(((one,) for one in self._candidates) if slips else ())):
            a, b, c, d = self._polynomial(chosen)
            for value in values:
                if low * d <= (a * value + b) * value + c <= high * d:
                    yield from self._verified(value, chosen, low, high)

    def roots(self, target: int) -> Iterator[ValueHit]:
        """Any value for which the count comes out without a slip."""
        a, b, c, d = self._polynomial(())
        for value in _roots(a, b, c - target * d):
            yield from self._verified(value, (), target, target)

    def _verified(
        self, value: int, chosen: tuple[PossibleSlip, ...], low: int, high: int
    ) -> Iterator[ValueHit]:
        made = self._build(value)
        if made is None or len(made.cells) != len(self._points[0][1].cells):
            return
        if low <= made.value(chosen) <= high:
            yield ValueHit(value=value, counted=made, chosen=chosen)

    def _polynomial(self, chosen: tuple[PossibleSlip, ...]) -> tuple[int, int, int, int]:
        """(a*x^2 + b*x + c) / d through the three points, by Lagrange."""
        (x, p), (y, q), (z, r) = ((at, counted.value(chosen)) for at, counted in self._points)
        below = ((x - y) * (x - z), (y - x) * (y - z), (z - x) * (z - y))
        d = lcm(*below)
        u, v, w = (value * (d // under) for value, under in zip((p, q, r), below, strict=True))
        a = u + v + w
        b = -(u * (y + z) + v * (x + z) + w * (x + y))
        c = u * y * z + v * x * z + w * x * y
        return a, b, c, d


def _roots(a: int, b: int, c: int) -> Iterator[int]:
    """The positive integers for which a*x^2 + b*x + c is zero."""
    if not a:
        if b and -c % b == 0 and -c // b > 0:
            yield -c // b
        return
    square = b * b - 4 * a * c
    if square < 0 or isqrt(square) ** 2 != square:
        return
    for root in {isqrt(square), -isqrt(square)}:
        if (root - b) % (2 * a) == 0 and (root - b) // (2 * a) > 0:
            yield (root - b) // (2 * a)
