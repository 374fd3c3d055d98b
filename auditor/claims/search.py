"""Search combinations of slips (errors in a count) whose total difference explains a count.

Each slip multiplies the count of some cells by a factor, so the order of slips does not matter, and
the differences of slips in different cells add up: the second slip of a pair is looked up in a
table. Only slips that share cells, such as a layer and a module in it, are tried one by one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations

from auditor.claims.candidates import CountedCells, PossibleSlip
from auditor.claims.cells import LEFT_OUT

Combination = tuple[PossibleSlip, ...]

_PAIRED = 200  # candidates for pairs
_TRIPLED = 140  # candidates for triples
_FOUND = 400  # combinations of one length that are kept for ranking


class Search:
    """A search for combinations of candidate slips of one count."""

    def __init__(self, counted: CountedCells, candidates: Sequence[PossibleSlip]) -> None:
        self._counted = counted
        self._candidates = tuple(candidates)
        self._joint: dict[int, tuple[tuple[PossibleSlip, PossibleSlip, int], ...]] = {}

    def combinations(self, low: int, high: int, length: int) -> Iterator[Combination]:
        """Yield combinations of `length` slips with which the count is from `low` to `high`.

        Each slip of a combination changes the count.
        """
        target = (low - self._counted.total, high - self._counted.total)
        match length:
            case 0:
                if target[0] <= 0 <= target[1]:
                    yield ()
            case 1:
                for slip in self._candidates:
                    if target[0] <= slip.difference <= target[1]:
                        yield (slip,)
            case 2:
                yield from self._effective(self._pairs(*target))
            case _:
                yield from self._effective(self._triples(*target))

    def _effective(self, combinations: Iterator[Combination]) -> Iterator[Combination]:
        """Yield the combinations in which every slip changes the count."""
        number = 0
        for chosen in combinations:
            value = self._counted.value(chosen)
            without = (tuple(one for one in chosen if one is not left) for left in chosen)
            if all(self._counted.value(less) != value for less in without):
                yield chosen
                number += 1
                if number >= _FOUND:
                    return

    def _pairs(self, low: int, high: int) -> Iterator[Combination]:
        chosen = self._candidates[:_PAIRED]
        table = _Table(chosen)
        for place, slip in enumerate(chosen):
            for second in table.between(low - slip.difference, high - slip.difference):
                if second > place and not _shared(slip, chosen[second]):
                    yield slip, chosen[second]
        for slip, second_slip, joint in self._overlapping(chosen):
            if low <= joint <= high:
                yield slip, second_slip

    def _triples(self, low: int, high: int) -> Iterator[Combination]:
        chosen = self._candidates[:_TRIPLED]
        table = _Table(chosen)
        pairs = [(a, b, a.difference + b.difference) for a, b in combinations(chosen, 2)]
        joint = {(id(a), id(b)): value for a, b, value in self._overlapping(chosen)}
        for a, b, separate in pairs:
            value = joint.get((id(a), id(b)), separate)
            for third in table.between(low - value, high - value):
                c = chosen[third]
                if c is a or c is b or _shared(a, c) or _shared(b, c):
                    continue
                if (id(a), id(b)) in joint or c.rarity >= b.rarity:
                    yield a, b, c

    def _overlapping(
        self, chosen: Sequence[PossibleSlip]
    ) -> tuple[tuple[PossibleSlip, PossibleSlip, int], ...]:
        """Return the pairs of slips that share cells, with the difference of both together."""
        if len(chosen) not in self._joint:
            self._joint[len(chosen)] = tuple(self._shared_pairs(chosen))
        return self._joint[len(chosen)]

    def _shared_pairs(
        self, chosen: Sequence[PossibleSlip]
    ) -> Iterator[tuple[PossibleSlip, PossibleSlip, int]]:
        cells = self._counted.cells
        spans = [sum(1 << number for number, _ in first_slip.masks) for first_slip in chosen]
        erasing = [all(mask & LEFT_OUT for _, mask in first_slip.masks) for first_slip in chosen]
        for (first, first_slip), (second, second_slip) in combinations(enumerate(chosen), 2):
            both = spans[first] & spans[second]
            if not both:
                continue
            # In most pairs one slip leaves out a module and the other is inside it, without effect.
            if both == spans[second] and erasing[first]:
                yield first_slip, second_slip, first_slip.difference
                continue
            if both == spans[first] and erasing[second]:
                yield first_slip, second_slip, second_slip.difference
                continue
            joint = first_slip.difference + second_slip.difference
            for number in first_slip.mask_of.keys() & second_slip.mask_of.keys():
                cell = cells[number]
                left, right = first_slip.mask_of[number], second_slip.mask_of[number]
                joint += cell.count(left | right) - cell.count(left)
                joint += cell.count() - cell.count(right)
            yield first_slip, second_slip, joint


def _shared(first: PossibleSlip, second: PossibleSlip) -> bool:
    return not first.mask_of.keys().isdisjoint(second.mask_of)


class _Table:
    """Candidates sorted by their differences, for binary search."""

    def __init__(self, chosen: Sequence[PossibleSlip]) -> None:
        self._places = sorted(range(len(chosen)), key=lambda place: chosen[place].difference)
        self._values = [chosen[place].difference for place in self._places]

    def between(self, low: int, high: int) -> Sequence[int]:
        values = self._values
        return self._places[bisect_left(values, low) : bisect_right(values, high)]
