"""Confirm a claim about a model, or refute it with the fewest slips (errors) that explain it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from auditor.claims.cells import FoldedTensor, total_of
from auditor.claims.explaining import Question, explanations
from auditor.claims.figures import (
    MILLION,
    Figure,
    is_chinese,
    parse_figure,
    parse_figures,
    share_of,
    without_active,
)
from auditor.claims.formulas import FormulaError, evaluate
from auditor.claims.parts import PartReading, readings
from auditor.claims.subject import Counterpart, Subject
from auditor.claims.verdict import Explanation, Nearest, Slip, Verdict

_OPERATOR = re.compile(r"[*+/^()²³·\u00d7]")
_ACTIVE = re.compile(r"(active|activated)( param(eter)?s)?|激活(参数量?)?", re.IGNORECASE)


def judge(subject: Subject, text: str, part: str = "", *, chinese: bool = False) -> Verdict:
    """Judge a claim by its first reading that is right, else by its likeliest reading."""
    figures = parse_figures(text, chinese=chinese or is_chinese(text + part))
    if not figures:
        return _of_formula(subject, text, part)
    verdicts = [_of_figure(subject, figure, part) for figure in figures]
    place = next(
        (at for at, verdict in enumerate(verdicts) if verdict.verdict.startswith("confirmed")), 0
    )
    notes = [verdicts[place].note]
    if reading := figures[place].reading:
        others = " or ".join(each.reading for each in figures if each is not figures[place])
        notes.insert(0, f"read as {reading}{others and f', not as {others}'}")
    return replace(verdicts[place], note="; ".join(filter(None, notes)))


def _of_figure(subject: Subject, figure: Figure, part: str) -> Verdict:
    part_readings, note = _readings(subject, part), ""
    if figure.is_share:
        if part_readings and not part_readings[0][1].label:
            return _nothing(figure.text, None, part, "a share of the model, but no --part is named")
        total = total_of(subject.own.cells)
        figure, note = share_of(figure, total), f"a share of the model's {total:,} parameters"
    elif figure.unit == "bytes" and subject.dtype is None:
        note = "the config declares no dtype: counted in F32"
    if not part_readings:
        return _by_value(subject, figure, part)
    verdict = _verdict(subject, figure, part, part_readings)
    return replace(verdict, note=verdict.note or note)


def _of_formula(subject: Subject, text: str, part: str) -> Verdict:
    try:
        value = evaluate(text, subject.letters)
    except FormulaError as error:
        if parse_figure(f"{text.strip()}M") is not None:
            note = f"the number has no unit: expected {text.strip()}M, B or 亿"
        elif _OPERATOR.search(text):
            note = f"neither a number nor a formula: {error}"
        else:
            letters = ", ".join(sorted(name for name in subject.letters if len(name) == 1))
            counts = "109482240, 110M, 1.1亿, 72.1 MB or 21.77%"
            note = f"not a number: expected a count such as {counts}, or a formula in {letters}"
        return _nothing(text, None, part, note)
    figure = Figure(text=text, value=value, low=value, high=value)
    return replace(_of_figure(subject, figure, part), note=f"{text} = {value:,}")


def judge_all(subject: Subject, claims: Sequence[tuple[str, str]]) -> tuple[Verdict, ...]:
    """Judge the claims of one text; a module missing in one may be included in another claim.

    `30B-A3B` is two claims: the total, and the parameters that one token uses.
    """
    chinese = any(is_chinese(text + part) for text, part in claims)
    verdicts = [
        judge(subject, each, name, chinese=chinese)
        for text, part in claims
        for each, name in _split(text, part)
    ]
    moved = {
        dict(slip.fields).get("module"): slip
        for verdict in verdicts
        for explanation in verdict.explanations[:1]
        for slip in explanation.slips
        if slip.slip == "part-in-another"
    }
    return tuple(_moved(_divided(verdict, verdicts), moved) for verdict in verdicts)


def _divided(verdict: Verdict, others: Sequence[Verdict]) -> Verdict:
    """Note that an unexplained claim is another claim divided by 2^20: 72.1 MB of 75,641,856."""
    figure = parse_figure(verdict.text)
    if verdict.verdict != "refuted" or verdict.explanations or not figure or figure.exact:
        return verdict
    for other in others:
        counted = (other.claim or 0) * 10**6 // MILLION
        is_same_part = other is not verdict and other.part == verdict.part
        if is_same_part and counted and figure.low <= counted <= figure.high:
            note = f"{other.text} divided by 2^20, not by a million (binary-million)"
            return replace(verdict, note=note, nearest=None)
    return verdict


def _split(text: str, part: str) -> Iterator[tuple[str, str]]:
    total, active = ("", "") if part else without_active(text)
    if total or not active:
        yield total or text, part
    if active:
        yield active, "active"


def _moved(verdict: Verdict, moved: Mapping[object, Slip]) -> Verdict:
    """Replace the slip `part-left-out` by `part-in-another` if another claim has the module."""
    if len(verdict.explanations[:1]) != 1 or len(verdict.explanations[0].slips) != 1:
        return verdict
    (slip,) = verdict.explanations[0].slips
    other = moved.get(dict(slip.fields).get("module"))
    if slip.slip != "part-left-out" or other is None or other.difference != -slip.difference:
        return verdict
    other_slip = replace(other, difference=slip.difference)
    first = Explanation(slips=(other_slip,), total=verdict.explanations[0].total)
    return replace(verdict, explanations=(first, *verdict.explanations[:2]))


def _nothing(text: str, claim: int | None, part: str, note: str) -> Verdict:
    return Verdict(
        text=text,
        claim=claim,
        part=part,
        verdict="nothing to compare with",
        actual=None,
        note=note,
    )


# --- the parts ----------------------------------------------------------------------------------


def _readings(subject: Subject, part: str) -> tuple[tuple[Counterpart, PartReading], ...]:
    """Return the possible readings of a part's name, in the class or else in a sibling class."""
    if _ACTIVE.fullmatch(part.strip()):
        if not any(axis.active for cell in subject.own.cells for axis in cell.axes):
            return ()
        active = tuple(_active(cell) for cell in subject.own.cells)
        return ((subject.own, PartReading("active", active, ())),)
    part_readings = readings(part, subject.own.cells, subject.own.prefix)
    if any(total_of(reading.cells) or not reading.label for reading in part_readings):
        return tuple((subject.own, reading) for reading in part_readings)
    for sibling in subject.siblings:
        part_readings = readings(part, sibling.cells, sibling.prefix)
        if any(total_of(reading.cells) for reading in part_readings):
            return tuple((sibling, reading) for reading in part_readings)
    return ()


def _active(cell: FoldedTensor) -> FoldedTensor:
    """Return the cell with only the active experts counted; counting all is then the slip."""
    axes = (
        axis if axis.active is None else axis._replace(size=axis.active, active=axis.size)
        for axis in cell.axes
    )
    return replace(cell, axes=tuple(axes))


# --- the verdict --------------------------------------------------------------------------------


def _verdict(
    subject: Subject,
    figure: Figure,
    part: str,
    part_readings: Sequence[tuple[Counterpart, PartReading]],
) -> Verdict:
    """Judge a claim by the first reading of its part that is right, else by the likeliest."""
    actuals = [_actual(subject, figure, total_of(reading.cells)) for _, reading in part_readings]
    fitting = [] if figure.experts else [figure.low <= actual <= figure.high for actual in actuals]
    place = fitting.index(True) if True in fitting else 0
    (whose, reading), actual = part_readings[place], actuals[place]
    of_class = "" if whose is subject.own else f" of {whose.target}"
    verdict = Verdict(
        text=figure.text,
        claim=figure.value,
        part=part,
        verdict="refuted",
        actual=actual,
        unit=figure.unit,
        reading=f"{reading.label}{of_class}",
    )
    if figure.experts:
        return _of_experts(figure, verdict, reading)
    if True in fitting and figure.exact:
        return replace(verdict, verdict="confirmed")
    if True in fitting:
        slip = Slip(slip="rounding", difference=figure.value - actual)
        rounding = Explanation(slips=(slip,), total=figure.value)
        return replace(
            verdict,
            verdict="confirmed to its rounding",
            explanations=(rounding,) if slip.difference else (),
        )
    question = Question(
        subject=subject, figure=figure, part=part, whose=whose, reading=reading, actual=actual
    )
    explained = explanations(question)
    nearest = None if explained else _nearest(question)
    return replace(verdict, explanations=explained, nearest=nearest)


def _actual(subject: Subject, figure: Figure, parameters: int) -> int:
    """Return the true count in the unit of the figure: parameters or bytes."""
    return parameters if figure.unit == "parameters" else parameters * subject.bits // 8


def _of_experts(figure: Figure, verdict: Verdict, reading: PartReading) -> Verdict:
    """Judge a claim like 8x7B: the number of experts, and the size of a model with one expert."""
    experts = {axis.size for cell in reading.cells for axis in cell.axes if axis.active}
    if not experts or figure.experts is None:
        return replace(verdict, note="the model has no experts")
    n = max(experts)
    single = 0
    for cell in reading.cells:
        # The mask counts one module of each list of experts.
        single += cell.count(sum(1 << at for at, axis in enumerate(cell.axes) if axis.active))
    is_right = n == figure.experts and figure.low <= single <= figure.high
    return replace(
        verdict,
        claim=figure.value * figure.experts,
        note=f"{n} experts; {single:,} parameters with one expert",
        verdict="confirmed to its rounding" if is_right else "refuted",
    )


# --- claims without an explanation --------------------------------------------------------------


def _modules(cells: Sequence[FoldedTensor]) -> Mapping[str, int]:
    """Return the number of parameters of each module, summed over all layers."""
    counts: dict[str, int] = {}
    for cell in cells:
        parts = cell.module.split(".")
        for length in range(len(parts) + 1):
            name = ".".join(parts[:length])
            counts[name] = counts.get(name, 0) + cell.count()
    return counts


def _nearest(question: Question) -> Nearest | None:
    """Return the count nearest to the claim: a class's, or a module's if a part is claimed."""
    subject, part, whose = question.subject, question.part, question.whose
    counts = dict(_modules(question.reading.cells)) if part else {}
    for counterpart in (whose, *subject.siblings):
        for reading in readings(part, counterpart.cells, counterpart.prefix)[:1]:
            name = f"{part} of {counterpart.target}" if part else counterpart.target
            counts[name] = total_of(reading.cells)
    if not part:
        counts[whose.target] = total_of(question.reading.cells)
    figure = question.figure
    actuals = {name: _actual(subject, figure, count) for name, count in counts.items()}
    distances = [
        (abs(figure.value - actual), len(name), name)
        for name, actual in actuals.items()
        if name and actual
    ]
    if not distances:
        return None
    *_, nearest = min(distances)
    count = actuals[nearest]
    return Nearest(module=nearest, count=count, difference=figure.value - count)


def _by_value(subject: Subject, figure: Figure, part: str) -> Verdict:
    """Judge a claim about an unknown part: name the modules that have exactly this count."""
    note = f"no part of {subject.own.target} is called {part!r}"
    fitting_parts = [
        name
        for name, count in _modules(subject.own.cells).items()
        if count and figure.low <= count <= figure.high
    ]
    if not fitting_parts or not figure.exact:
        return _nothing(figure.text, figure.value, part, note)
    first = min(
        fitting_parts, key=lambda name: (name.count("*"), name.count(".") - 9 * (name == ""), name)
    )
    return Verdict(
        text=figure.text,
        claim=figure.value,
        part=part,
        verdict="confirmed",
        actual=figure.value,
        reading=first,
        note=f"{note}; {first or 'the whole model'} has as many",
    )
