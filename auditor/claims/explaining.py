"""Explain a wrong claim by the fewest slips (counting errors) that give its number.

A combination of slips explains a figure only if the figure has as many significant digits as the
slips cost together (see `candidates`): with enough slips, any number can be explained.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.claims.candidates import Cost, CountedCells, PossibleSlip, candidates
from auditor.claims.figures import Fields, Figure, Way, ways
from auditor.claims.parts import PartReading, readings
from auditor.claims.subject import Counterpart, Subject, values_with_total
from auditor.claims.verdict import Explanation, Slip

SHOWN = 3  # explanations of one claim
_LONGEST = 3  # slips in an explanation
_CANCELLING = 10  # slips that undo nine tenths of each other are a coincidence
_FEW = 3  # digits: only slips of publishers explain a shorter figure


class Question(Struct, frozen=True, kw_only=True):
    """A wrong claim with the true count, as input of the search for an explanation."""

    subject: Subject
    figure: Figure
    part: str
    whose: Counterpart
    reading: PartReading
    actual: int  # in the figure's unit

    def counted(self, of: Counterpart, reading: PartReading) -> CountedCells:
        return CountedCells(
            cells=(*reading.cells, *reading.other_cells),
            inside=len(reading.cells),
            prefix=of.prefix,
            part=self.part,
        )

    def counted_in(self, of: Counterpart) -> CountedCells | None:
        """Return the cells of the claimed part in another class or config; None if absent there."""
        part_readings = readings(self.part, of.cells, of.prefix)
        return self.counted(of, part_readings[0]) if part_readings else None


class _Count(NamedTuple):
    """A count that slips lead to.

    `step` is the slip of counting another class; None if the audited class is counted.
    """

    total: int
    counted: CountedCells
    chosen: tuple[PossibleSlip, ...] = ()
    step: tuple[str, Fields] | None = None

    @property
    def slips(self) -> int:
        return len(self.chosen) + (self.step is not None)

    @property
    def costs(self) -> tuple[int, ...]:
        of_step = Cost.COMMON if self.step is not None else 0
        return (of_step, *(slip.cost for slip in self.chosen))


def explanations(question: Question) -> tuple[Explanation, ...]:
    """Return the explanations with the fewest slips, the most common first; may be ()."""
    figure = question.figure
    own = question.counted(question.whose, question.reading)
    counts = sorted(_counts(question, own), key=lambda count: count.total)
    totals = [count.total for count in counts]
    rank_by_slips: dict[tuple[Slip, ...], tuple[int, ...]] = {}
    for packed in _of_stored(question):
        rank_by_slips[packed] = (1,)
    for way in ways(figure, question.subject.dtype):
        for count in counts[bisect_left(totals, way.low) : bisect_right(totals, way.high)]:
            cost, places = way.cost + sum(count.costs), (slip.place for slip in count.chosen)
            rank = (way.slips + count.slips, cost, way.slips, *places)
            if not 0 < rank[0] <= _LONGEST or not _is_likely(figure, way, count, own):
                continue
            if slips := _with_differences(question, count, way):
                key = tuple(sorted(slips, key=str))
                rank_by_slips[key] = min(rank, rank_by_slips.get(key, rank))
    if not rank_by_slips and figure.exact and figure.digits > _FEW:
        for slips in _of_other_configs(question):
            rank_by_slips[slips] = (1,)
    ranked = sorted(rank_by_slips, key=lambda slips: (rank_by_slips[slips], str(slips)))
    fewest = [one for one in ranked if rank_by_slips[one][0] == rank_by_slips[ranked[0]][0]]
    shown = (
        sorted(slips, key=lambda slip: (slip.slip == "rounding", -abs(slip.difference)))
        for slips in _of_different_kinds(fewest)
    )
    return tuple(Explanation(slips=tuple(slips), total=figure.value) for slips in shown)


def _of_other_configs(question: Question) -> Iterator[tuple[Slip, ...]]:
    """Yield the explanations that another value of one config key was counted."""
    subject, target = question.subject, question.whose.target
    own, claimed = question.actual, question.figure.value
    if question.figure.unit == "bytes":
        return

    def total_with(key: str, value: Any) -> int | None:
        model = subject.with_value(key, value, target)
        counted = question.counted_in(model) if model else None
        return counted.total if counted else None

    for key, value in values_with_total(subject, total_with, own, claimed):
        fields = (("key", key), ("value", value))
        yield (Slip(slip="other-config", difference=claimed - own, fields=fields),)


def _is_likely(figure: Figure, way: Way, count: _Count, own: CountedCells) -> bool:
    """Return whether a figure has enough digits for the slips, and each slip is a real change."""
    chosen = count.chosen
    costs = [way.cost, *count.costs]
    combined = way.truncated and count.slips > 0
    if sum(costs) + combined > figure.digits:
        return False
    if figure.digits <= _FEW and max(costs) > Cost.PUBLISHED:
        return False
    if way.rounded_up:  # as the Hub's counts, which include scales besides MTP layers
        counted = sum(slip.difference for slip in chosen if slip.slip == "part-counted")
        return counted > figure.last_digit
    if count.slips < 2:  # noqa: PLR2004 - nothing is combined
        return True
    fewer = (count.counted.value(one for one in chosen if one is not left) for left in chosen)
    changes = [count.counted.total - own.total, *(slip.difference for slip in chosen)]
    together = abs(count.total - own.total) * _CANCELLING
    return together >= max(map(abs, changes)) and all(total != count.total for total in fewer)


def _counts(question: Question, own: CountedCells) -> Iterator[_Count]:
    """Yield the counts that slips lead to, as far as the figure has digits for them.

    Slips are combined in pairs, at least one of the two common, and in threes of common ones.
    """
    digits = question.figure.digits
    for sibling in question.subject.siblings if digits > _FEW else ():
        if (counted := question.counted_in(sibling)) is not None:
            step = ("other-class", (("class", sibling.target),))
            yield _Count(counted.total, counted, (), step)
            for slip in candidates(counted):
                if slip.cost <= Cost.COMMON:
                    yield _Count(counted.total + slip.difference, counted, (slip,), step)
    yield _Count(own.total, own)
    possible = [slip for slip in candidates(own) if slip.cost <= digits]
    common = [slip for slip in possible if slip.cost < Cost.RARE]
    combined = [((slip,) for slip in possible), combinations(common, 2)]
    if digits >= Cost.FOR_ANY_FIGURE + Cost.RARE:
        combined.append((one, rare) for rare in possible[len(common) :] for one in common)
    if digits >= Cost.PUBLISHED + 2 * Cost.COMMON:
        combined.append(combinations(common, _LONGEST))
    for chosen in chain(*combined):
        if sum(slip.cost for slip in chosen) <= digits:
            numbers = [slip.numbers for slip in chosen]
            is_separate = len(frozenset().union(*numbers)) == sum(map(len, numbers))
            differences = own.total + sum(slip.difference for slip in chosen)
            yield _Count(differences if is_separate else own.value(chosen), own, chosen)


def _of_different_kinds(ranked: Sequence[tuple[Slip, ...]]) -> Sequence[tuple[Slip, ...]]:
    """Choose the explanations to show, preferring different kinds of slips; keep their order."""
    first: dict[tuple[str, ...], tuple[Slip, ...]] = {}
    for slips in ranked:
        first.setdefault(tuple(slip.slip for slip in slips), slips)
    kinds = list(first.values())[:SHOWN]
    more = [slips for slips in ranked if slips not in kinds]
    return sorted([*kinds, *more][:SHOWN], key=ranked.index)


def _of_stored(question: Question) -> Iterator[tuple[Slip, ...]]:
    """Yield the explanation that packed elements, each of several parameters, were counted."""
    stored, figure = question.subject.stored, question.figure
    if stored is None or not stored.packed or question.part or figure.unit == "bytes":
        return
    if figure.low <= stored.elements <= figure.high and stored.elements != question.actual:
        packed = Slip(slip="elements-for-parameters", difference=stored.elements - question.actual)
        remainder = figure.value - stored.elements
        yield (packed, *((Slip(slip="rounding", difference=remainder),) if remainder else ()))


# --- the report of slips ------------------------------------------------------------------------


def _with_differences(question: Question, count: _Count, way: Way) -> tuple[Slip, ...] | None:
    """Return the slips with the change that each makes; None if a slip changes nothing."""
    figure, subject = question.figure, question.subject
    slips: list[Slip] = []
    before = question.actual

    def add(slip: str, fields: tuple[tuple[str, Any], ...], after: int) -> None:
        nonlocal before
        slips.append(Slip(slip=slip, difference=after - before, fields=fields))
        before = after

    scale = subject.bits if figure.unit == "bytes" else 8
    if way.first is not None:  # this slip changes the unit of the count
        add(*way.first, question.actual * way.bits // scale)
    if count.step is not None:
        add(*count.step, count.counted.total * way.bits // 8)
    taken: list[PossibleSlip] = []
    for one in sorted(count.chosen, key=lambda slip: slip.order):
        taken.append(one)
        name = (
            "all-experts"
            if question.reading.label == "active" and one.slip == "active-only"
            else one.slip
        )
        add(name, one.fields, count.counted.value(taken) * way.bits // 8)
    for slip, fields, ratio in way.last:
        add(slip, fields, round(before * ratio))
    if way.truncated and before != figure.value:
        add("truncated", (), figure.value)
    if not all(slip.difference for slip in slips):
        return None
    if before != figure.value:
        if figure.exact and abs(before - figure.value) > 1:
            return None
        add("rounding", (), figure.value)
    return tuple(slips)
