"""Explain a wrong claim by the fewest slips (counting errors) that give its number.

A combination of slips explains a figure only if the figure has as many significant digits as the
slips cost together (see `candidates`): with enough slips, any number can be explained.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.claims.candidates import (
    COMMON,
    FOR_ANY_FIGURE,
    PUBLISHED,
    RARE,
    CountedCells,
    PossibleSlip,
    candidates,
)
from auditor.claims.figures import Figure, Way, ways
from auditor.claims.other_values import values_with_total
from auditor.claims.parts import PartReading, readings
from auditor.claims.subject import Counterpart, Subject
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


class _Base(Struct, frozen=True, kw_only=True):
    """A count to which slips are applied: of the audited class, or of another class or config.

    `step` is the slip of counting that other class or config; None for the audited class.
    """

    counted: CountedCells
    true_total: int
    step: tuple[str, tuple[tuple[str, Any], ...]] | None = None
    cost: int = 0


class _Count(NamedTuple):
    """A count that slips lead to."""

    total: int
    base: _Base
    chosen: tuple[PossibleSlip, ...]

    @property
    def slips(self) -> int:
        return len(self.chosen) + (self.base.step is not None)

    @property
    def cost(self) -> int:
        return self.base.cost + sum(slip.cost for slip in self.chosen)


def explanations(question: Question) -> tuple[Explanation, ...]:
    """Return the explanations with the fewest slips, the most common first; may be ()."""
    figure = question.figure
    counts = sorted(_counts(question), key=lambda count: count.total)
    totals = [count.total for count in counts]
    rank_by_slips: dict[tuple[Slip, ...], tuple[int, ...]] = {}
    for packed in _of_stored(question):
        rank_by_slips[packed] = (1,)
    for way in ways(figure, question.subject.dtype):
        for count in counts[bisect_left(totals, way.low) : bisect_right(totals, way.high)]:
            slips_together = way.slips + count.slips
            rank = (slips_together, way.cost + count.cost, way.slips, *_places(count))
            if not 0 < rank[0] <= _LONGEST or not _is_likely(figure, way, count):
                continue
            if slips := _with_differences(question, count.base, way, count.chosen):
                key = tuple(sorted(slips, key=str))
                rank_by_slips[key] = min(rank, rank_by_slips.get(key, rank))
    if not rank_by_slips and figure.exact and figure.digits > _FEW:
        for slips in _of_other_configs(question):
            rank_by_slips[slips] = (1,)
    ranked = sorted(rank_by_slips, key=lambda slips: (rank_by_slips[slips], str(slips)))
    fewest = [one for one in ranked if rank_by_slips[one][0] == rank_by_slips[ranked[0]][0]]
    return tuple(_ordered(slips, figure.value) for slips in _of_different_kinds(fewest))


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


def _places(count: _Count) -> tuple[int, ...]:
    return tuple(slip.place for slip in count.chosen)


def _is_likely(figure: Figure, way: Way, count: _Count) -> bool:
    """Return whether a figure has enough digits for the slips, and each slip is a real change."""
    chosen = count.chosen
    costs = [way.cost, count.base.cost, *(slip.cost for slip in chosen)]
    combined = way.truncated and count.slips > 0
    if sum(costs) + combined > figure.digits or (figure.digits <= _FEW and max(costs) > PUBLISHED):
        return False
    if way.rounded_up:  # as the Hub's counts, which include scales besides MTP layers
        counted = sum(slip.difference for slip in chosen if slip.slip == "part-counted")
        return counted > figure.last_digit
    if count.slips < 2:  # noqa: PLR2004 - nothing is combined
        return True
    base = count.base
    fewer = (base.counted.value(one for one in chosen if one is not left) for left in chosen)
    changes = [base.counted.total - base.true_total, *(slip.difference for slip in chosen)]
    together = abs(count.total - base.true_total) * _CANCELLING
    return together >= max(map(abs, changes)) and all(total != count.total for total in fewer)


def _counts(question: Question) -> Iterator[_Count]:
    """Yield the counts that slips lead to, as far as the figure has digits for them."""
    digits = question.figure.digits
    own = question.counted(question.whose, question.reading)
    bases = [_Base(counted=own, true_total=own.total)]
    if digits > _FEW:
        for sibling in question.subject.siblings:
            counted = question.counted_in(sibling)
            if counted is not None:
                step = ("other-class", (("class", sibling.target),))
                bases.append(_Base(counted=counted, true_total=own.total, step=step, cost=COMMON))
    for base in bases:
        total = base.counted.total
        yield _Count(total, base, ())
        most = digits if base.step is None else COMMON
        possible = [one for one in candidates(base.counted) if one.cost <= most]
        yield from (_Count(total + one.difference, base, (one,)) for one in possible)
        if base.step is None:
            yield from _combined(base, possible, digits)


def _combined(base: _Base, possible: Sequence[PossibleSlip], digits: int) -> Iterator[_Count]:
    """Yield the counts of two slips, at least one of them common, and of three common slips."""
    common = [one for one in possible if one.cost < RARE]
    rare = possible[len(common) :]
    counted = base.counted
    for pair in combinations(common, 2):
        yield from _together(counted, base, pair, digits)
    for second in rare if digits >= FOR_ANY_FIGURE + RARE else ():
        for first in common:
            yield from _together(counted, base, (first, second), digits)
    if digits >= PUBLISHED + 2 * COMMON:
        for triple in combinations(common, _LONGEST):
            yield from _together(counted, base, triple, digits)


def _together(
    counted: CountedCells, base: _Base, chosen: tuple[PossibleSlip, ...], digits: int
) -> Iterator[_Count]:
    if sum(slip.cost for slip in chosen) <= digits:
        masks = [slip.numbers for slip in chosen]
        separate = len(frozenset().union(*masks)) == sum(map(len, masks))
        differences = counted.total + sum(slip.difference for slip in chosen)
        yield _Count(differences if separate else counted.value(chosen), base, chosen)


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


def _ordered(slips: Sequence[Slip], total: int) -> Explanation:
    order = sorted(slips, key=lambda slip: (slip.slip == "rounding", -abs(slip.difference)))
    return Explanation(slips=tuple(order), total=total)


# --- the report of slips ------------------------------------------------------------------------


def _with_differences(
    question: Question, base: _Base, way: Way, chosen: Sequence[PossibleSlip]
) -> tuple[Slip, ...] | None:
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
    if base.step is not None:
        add(*base.step, base.counted.total * way.bits // 8)
    taken: list[PossibleSlip] = []
    for one in sorted(chosen, key=lambda slip: slip.order):
        taken.append(one)
        name = (
            "all-experts"
            if question.reading.label == "active" and one.slip == "active-only"
            else one.slip
        )
        add(name, one.fields, base.counted.value(taken) * way.bits // 8)
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
