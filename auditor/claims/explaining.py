"""Explain a wrong claim by the fewest slips (counting errors) that give its number.

Rarity is a number by which explanations are ranked, small for a common slip.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from msgspec import Struct

from auditor.claims.candidates import CountedCells, PossibleSlip, candidates
from auditor.claims.curves import Curve, likely_values
from auditor.claims.figures import Figure, Way, ways
from auditor.claims.parts import PartReading, readings
from auditor.claims.search import Search
from auditor.claims.subject import Counterpart, Subject
from auditor.claims.verdict import Explanation, Slip

SHOWN = 3  # explanations of one claim
_LONGEST = 3  # slips in an explanation; with more, any number can be explained
_FEW = 3  # digits: another value of some key can explain any shorter number
_RAREST = 4.0  # the highest sum of rarities for a figure of so few digits
_COMMON = 2.3  # the highest rarity for a rounded figure, which hundreds of slips fit
_COMMON_OF_SEVERAL = 1.85  # the highest rarity of each slip if there are several


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


class _Base(Struct, frozen=True, kw_only=True, dict=True):
    """A count to which slips are applied: of the audited class, or of another class or config.

    `step` is the slip of counting that other class or config; None for the audited class.
    """

    counted: CountedCells
    step: tuple[str, tuple[tuple[str, Any], ...]] | None = None
    rarity: float = 0.0

    @cached_property
    def candidates(self) -> tuple[PossibleSlip, ...]:
        return candidates(self.counted)

    @cached_property
    def search(self) -> Search:
        return Search(self.counted, self.candidates)


_Found = tuple[_Base, tuple[PossibleSlip, ...]]


def explanations(
    question: Question,
) -> tuple[Explanation, ...]:
    """Return the explanations with the fewest slips, the most common first; may be ()."""
    bases = _Bases(question)
    rank_by_slips: dict[tuple[Slip, ...], tuple[int, float]] = {}
    figure = question.figure
    rank_by_slips.update((stored, (len(stored), 1.5)) for stored in _of_stored(question))
    read = tuple(ways(figure, question.subject.dtype))
    for length in range(1, _LONGEST + 1):
        for way in (way for way in read if way.slips <= length):
            slips = length - way.slips
            for base, chosen in bases.of_length(slips, way, alone=not rank_by_slips):
                _note(rank_by_slips, question, base, way, chosen, length)
        if rank_by_slips and (length > 1 or not figure.exact):
            break
    ranked = sorted(rank_by_slips, key=lambda slips: (*rank_by_slips[slips], str(slips)))
    return tuple(_ordered(slips, figure.value) for slips in _of_different_kinds(ranked))


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


def _note(  # noqa: PLR0913, PLR0917 - an explanation, and where it is noted
    rank_by_slips: dict[tuple[Slip, ...], tuple[int, float]],
    question: Question,
    base: _Base,
    way: Way,
    chosen: tuple[PossibleSlip, ...],
    length: int,
) -> None:
    rarity = base.rarity + way.rarity + sum(one.rarity for one in chosen)
    if rarity > _RAREST and question.figure.digits <= _FEW:
        return
    slips = _with_differences(question, base, way, chosen)
    if slips is None:
        return
    rank = (length, rarity)
    key = tuple(sorted(slips, key=str))
    if key not in rank_by_slips or rank < rank_by_slips[key]:
        rank_by_slips[key] = rank


def _ordered(slips: Sequence[Slip], total: int) -> Explanation:
    order = sorted(slips, key=lambda slip: (slip.slip == "rounding", -abs(slip.difference)))
    return Explanation(slips=tuple(order), total=total)


# --- the start of a count -----------------------------------------------------------------------


class _Bases:
    """The counts to which slips are applied: of the audited class, siblings, other configs."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._subject = question.subject
        self._exact = question.figure.exact
        self._own = _Base(counted=question.counted(question.whose, question.reading))

    def of_length(self, slips: int, way: Way, *, alone: bool) -> Iterator[_Found]:
        """Yield the combinations of `slips` slips; `alone` is true if no explanation is known."""
        low, high = way.low, way.high
        if slips == 0:
            if way.slips and low <= self._own.counted.total <= high:
                yield self._own, ()
            return
        yield from self._on(self._own, low, high, slips)
        for base in self._siblings:
            yield from self._on(base, low, high, slips - 1)
        if slips == 1 and alone and not way.slips:
            yield from self._other_configs(low, high)

    def _on(self, base: _Base, low: int, high: int, slips: int) -> Iterator[_Found]:
        """Yield combinations of `slips` slips that change the base's count to low ... high."""
        if not slips:
            if base.step and low <= base.counted.total <= high:
                yield base, ()
            return
        common = _COMMON if slips == 1 else _COMMON_OF_SEVERAL
        search = base.search
        if not self._exact:
            common_enough = [one for one in base.candidates if one.rarity <= common]
            search = Search(base.counted, common_enough)
        for chosen in search.combinations(low, high, slips):
            yield base, chosen

    @cached_property
    def _siblings(self) -> tuple[_Base, ...]:
        bases = []
        for sibling in self._subject.siblings:
            counted = self._question.counted_in(sibling)
            if counted is not None:
                step = ("other-class", (("class", sibling.target),))
                bases.append(_Base(counted=counted, step=step, rarity=2.5))
        return tuple(bases)

    def _other_configs(self, low: int, high: int) -> Iterator[_Found]:
        """Yield the other values of one key that give the claimed number without another slip."""
        if not self._exact or self._question.figure.digits <= _FEW:
            return
        for key, curve in self._curves.items():
            for hit in curve.hits(low, high, self._likely(key)):
                yield self._of_value(key, hit.value, hit.counted), ()
        for base in self._flags:
            yield from self._on(base, low, high, 0)

    @cached_property
    def _curves(self) -> dict[str, Curve]:
        """Map each key to the count as a function of it, for keys that do not change the cells."""
        curves = {}
        for key, value in self._subject.sizes.items():
            build = partial(self._counted_with, key)
            curve = Curve(self._own.counted, value, build)
            if curve.measure(self._likely(key)):
                curves[key] = curve
        return curves

    def _counted_with(self, key: str, value: Any) -> CountedCells | None:
        """Return the part's cells with another value of one key; None if it cannot be built."""
        model = self._subject.with_value(key, value, self._question.whose.target)
        return self._question.counted_in(model) if model else None

    def _likely(self, key: str) -> tuple[int, ...]:
        return likely_values(key, self._subject.sizes[key], self._subject.sizes)

    @cached_property
    def _flags(self) -> tuple[_Base, ...]:
        bases = []
        for key, value in self._subject.flags():
            counted = self._counted_with(key, not value)
            if counted is not None and counted.total != self._own.counted.total:
                step = ("other-config", (("key", key), ("value", not value)))
                bases.append(_Base(counted=counted, step=step, rarity=2.7))
        return tuple(bases)

    def _of_value(self, key: str, value: int, counted: CountedCells) -> _Base:
        fields = (("key", key), ("value", value))
        rarity = 2.5 if "vocab" in key else 2.8
        return _Base(counted=counted, step=("other-config", fields), rarity=rarity)


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
