"""Explanations of a wrong claim: the fewest slips that give its number."""

from collections.abc import Iterator, Sequence
from functools import cached_property
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
# The most cells of models with other values that are built if nothing else explains a claim: 69
# models of BERT, which has 29 cells. A cell takes 60 microseconds.
_BUILT = 2000
_LONGEST = 5  # slips: three of the count, the others of how the number is read
_COMMON = 2.3  # the rarest slip that may explain a rounded figure, which hundreds of slips hit
_COMMON_OF_SEVERAL = 1.85  # the rarest slip if there are several


class Question(Struct, frozen=True, kw_only=True):
    """A wrong claim."""

    subject: Subject
    figure: Figure
    part: str
    whose: Counterpart
    reading: PartReading
    actual: int  # in the figure's unit

    def counted(self, of: Counterpart, reading: PartReading) -> CountedCells:
        return CountedCells(
            cells=(*reading.cells, *reading.rest),
            inside=len(reading.cells),
            prefix=of.prefix,
            part=self.part,
        )

    def counted_in(self, of: Counterpart) -> CountedCells | None:
        """Count this part of another class or config; None if that has no such part."""
        part_readings = readings(self.part, of.cells, of.prefix)
        return self.counted(of, part_readings[0]) if part_readings else None


class _Base(Struct, frozen=True, kw_only=True, dict=True):
    """A count to start from, and the slips that lead to it."""

    counted: CountedCells
    steps: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
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
    """Return the fewest slips that give the claim, the commonest first; () if none do."""
    bases = _Bases(question)
    rank_by_slips: dict[tuple[Slip, ...], tuple[int, float]] = {}
    figure = question.figure
    rank_by_slips.update((stored, (len(stored), 1.5)) for stored in _of_stored(question))
    read = tuple(ways(figure, question.subject.dtype))
    for length in range(1, _LONGEST + 1):
        for way in (way for way in read if len(way.slips) <= length):
            slips = length - len(way.slips)
            for base, chosen in bases.of_length(slips, way, alone=not rank_by_slips):
                _note(rank_by_slips, question, base, way, chosen, length)
        if rank_by_slips and (length > 1 or not figure.exact):
            break
    if not rank_by_slips and figure.exact:
        for base, chosen in bases.built_values(figure.value):
            _note(rank_by_slips, question, base, read[0], chosen, 1 + len(chosen))
    if not rank_by_slips and figure.exact:
        for base, chosen in bases.odd_values(figure.value):
            _note(rank_by_slips, question, base, read[0], chosen, _LONGEST)
    ranked = sorted(rank_by_slips, key=lambda slips: (*rank_by_slips[slips], str(slips)))
    return tuple(_ordered(slips, figure.value) for slips in _of_different_kinds(ranked))


def _of_different_kinds(ranked: Sequence[tuple[Slip, ...]]) -> Sequence[tuple[Slip, ...]]:
    """Keep one combination of each kind, because there are many matrices of one size."""
    first: dict[tuple[str, ...], tuple[Slip, ...]] = {}
    for slips in ranked:
        first.setdefault(tuple(slip.slip for slip in slips), slips)
    kinds = list(first.values())[:SHOWN]
    more = [slips for slips in ranked if slips not in kinds]
    return sorted([*kinds, *more][:SHOWN], key=ranked.index)


def _of_stored(question: Question) -> Iterator[tuple[Slip, ...]]:
    """Yield the count of the elements of packed tensors, with several parameters each."""
    stored, figure = question.subject.stored, question.figure
    if stored is None or not stored.packed or question.part or figure.unit == "bytes":
        return
    if figure.low <= stored.elements <= figure.high and stored.elements != question.actual:
        packed = Slip(slip="elements-for-parameters", difference=stored.elements - question.actual)
        rest = figure.value - stored.elements
        yield (packed, *((Slip(slip="rounding", difference=rest),) if rest else ()))


def _note(  # noqa: PLR0913, PLR0917 - an explanation, and where it is noted
    rank_by_slips: dict[tuple[Slip, ...], tuple[int, float]],
    question: Question,
    base: _Base,
    way: Way,
    chosen: tuple[PossibleSlip, ...],
    length: int,
) -> None:
    slips = _with_differences(question, base, way, chosen)
    if slips is None:
        return
    rank = (length, base.rarity + way.rarity + sum(one.rarity for one in chosen))
    key = tuple(sorted(slips, key=str))
    if key not in rank_by_slips or rank < rank_by_slips[key]:
        rank_by_slips[key] = rank


def _ordered(slips: Sequence[Slip], total: int) -> Explanation:
    order = sorted(slips, key=lambda slip: (slip.slip == "rounding", -abs(slip.difference)))
    return Explanation(slips=tuple(order), total=total)


# --- the start of a count -----------------------------------------------------------------------


class _Bases:
    """The counts for which a wrong one may be right, and the slips on top of them."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._subject = question.subject
        self._exact = question.figure.exact
        self._own = _Base(counted=question.counted(question.whose, question.reading))

    def of_length(self, slips: int, way: Way, *, alone: bool) -> Iterator[_Found]:
        """Yield the combinations of this many slips; `alone` if no shorter one was found."""
        low, high = way.low, way.high
        if slips == 0:
            if way.slips and low <= self._own.counted.total <= high:
                yield self._own, ()
            return
        yield from self._on(self._own, low, high, slips)
        for base in self._siblings:
            yield from self._on(base, low, high, slips - 1)
        plain = alone and self._exact and not way.slips
        if slips == 1 or (slips == 2 and plain):  # noqa: PLR2004
            yield from self._other_configs(low, high, slips=slips == 2)  # noqa: PLR2004
        if slips == 2 and plain:  # noqa: PLR2004
            budget = _BUILT
            for base in self._siblings:
                budget -= 2 * len(base.counted.cells) * len(self._subject.sizes)
                if budget >= 0:
                    yield from self._configs_of(base, low, high)

    def _on(self, base: _Base, low: int, high: int, slips: int) -> Iterator[_Found]:
        """Yield the slips of cells on top of a base."""
        if slips > 3 or (base.steps and slips > 2):  # noqa: PLR2004 - then anything comes out
            return
        if not slips:
            if base.steps and low <= base.counted.total <= high:
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
                steps = (("other-class", (("class", sibling.target),)),)
                bases.append(_Base(counted=counted, steps=steps, rarity=2.5))
        return tuple(bases)

    def _other_configs(self, low: int, high: int, *, slips: bool) -> Iterator[_Found]:
        for key, curve in self._curves.items():
            if self._exact or "vocab" in key:
                values = self._likely(key)
                for hit in curve.hits(low, high, values, slips=slips):
                    yield self._of_value(key, hit.value, hit.counted), hit.chosen
        for base in self._flags:
            yield from self._on(base, low, high, 1 if slips else 0)

    def _configs_of(self, sibling: _Base, low: int, high: int) -> Iterator[_Found]:
        """Yield the counts of another class with another config."""
        target = str(dict(sibling.steps[0][1])["class"])
        for key in self._subject.sizes:
            curve = self._curve(key, sibling.counted, (), target)
            if curve is None:
                continue
            for hit in curve.hits(low, high, self._likely(key), slips=False):
                base = self._of_value(key, hit.value, hit.counted)
                steps = (*sibling.steps, *base.steps)
                yield _Base(counted=hit.counted, steps=steps, rarity=5.3), ()

    def built_values(self, target: int) -> Iterator[_Found]:
        """Yield values of keys in which the count is not a polynomial; each model is built."""
        own = self._own.counted
        budget = _BUILT
        for key in sorted(self._subject.sizes, key=lambda key: key in self._curves):
            alone = () if key in self._curves else tuple((one,) for one in self._own.candidates)
            for value in self._likely(key):
                budget -= len(own.cells)
                if budget < 0:
                    return
                model = self._subject.with_value(key, value, self._question.whose.target)
                counted = self._question.counted_in(model) if model else None
                if counted is None or len(counted.cells) != len(own.cells):
                    continue
                for chosen in ((), *alone):
                    if counted.value(chosen) == target:
                        yield self._of_value(key, value, counted), chosen

    def odd_values(self, target: int) -> Iterator[_Found]:
        """Yield values that no published model has."""
        for key, curve in self._curves.items():
            for hit in curve.roots(target):
                yield self._of_value(key, hit.value, hit.counted), hit.chosen

    @cached_property
    def _curves(self) -> dict[str, Curve]:
        own = self._own
        curves = {}
        for key in self._subject.sizes:
            target = self._question.whose.target
            curve = self._curve(key, own.counted, own.candidates, target)
            if curve is not None:
                curves[key] = curve
        return curves

    def _curve(
        self, key: str, counted: CountedCells, candidates: Sequence[PossibleSlip], target: str
    ) -> Curve | None:
        def build(value: int) -> CountedCells | None:
            made = self._subject.with_value(key, value, target)
            return self._question.counted_in(made) if made else None

        curve = Curve(counted, candidates, self._subject.sizes[key], build)
        return curve if curve.measure(self._likely(key)) else None

    def _likely(self, key: str) -> tuple[int, ...]:
        return likely_values(key, self._subject.sizes[key], self._subject.sizes)

    @cached_property
    def _flags(self) -> tuple[_Base, ...]:
        bases = []
        for key, value in self._subject.flags():
            made = self._subject.with_value(key, not value)
            counted = self._question.counted_in(made) if made else None
            if counted is not None and counted.total != self._own.counted.total:
                steps = (("other-config", (("key", key), ("value", not value))),)
                bases.append(_Base(counted=counted, steps=steps, rarity=2.7))
        return tuple(bases)

    def _of_value(self, key: str, value: int, counted: CountedCells) -> _Base:
        fields = (("key", key), ("value", value))
        rarity = 2.5 if "vocab" in key else 2.8
        return _Base(counted=counted, steps=(("other-config", fields),), rarity=rarity)


# --- the report of slips ------------------------------------------------------------------------


def _with_differences(
    question: Question, base: _Base, way: Way, chosen: Sequence[PossibleSlip]
) -> tuple[Slip, ...] | None:
    """Return each slip with its difference to the count before it; None if one has none."""
    figure, subject = question.figure, question.subject
    slips: list[Slip] = []
    before = question.actual

    def add(slip: str, fields: tuple[tuple[str, Any], ...], after: int) -> None:
        nonlocal before
        slips.append(Slip(slip=slip, difference=after - before, fields=fields))
        before = after

    bits, reads = 8, way.slips
    if figure.unit == "bytes":
        bits = subject.bits if not reads else 8
        if reads:  # the count starts in parameters
            add(*reads[0], question.actual * 8 // subject.bits)
            reads = reads[1:]
    for slip, fields in base.steps:
        # For a class with a config, the class is reported with the difference of both.
        add(slip, fields, _after(question, base, slip) * bits // 8)
    taken: list[PossibleSlip] = []
    for one in sorted(chosen, key=lambda one: one.order):
        taken.append(one)
        name = (
            "all-experts"
            if question.reading.label == "active" and one.slip == "active-only"
            else one.slip
        )
        add(name, one.fields, base.counted.value(taken) * bits // 8)
    for slip, fields in reads:
        add(slip, fields, way.read(slip, before))
    if not all(slip.difference for slip in slips):
        return None
    if before != figure.value:
        if figure.exact and abs(before - figure.value) > 1:
            return None
        add("rounding", (), figure.value)
    return tuple(slips)


def _after(question: Question, base: _Base, slip: str) -> int:
    """Return the count after a step of a base with one step or two."""
    if slip == base.steps[-1][0]:
        return base.counted.total
    name = dict(base.steps[0][1])["class"]
    sibling = next(one for one in question.subject.siblings if one.target == name)
    counted = question.counted_in(sibling)
    return counted.total if counted else base.counted.total
