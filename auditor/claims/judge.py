"""Confirm a claim about a model, or refute it with the fewest slips (errors) that explain it."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from auditor.claims.cells import FoldedTensor, changed, total_of
from auditor.claims.explaining import Question, explanations
from auditor.claims.figures import Figure, parse_figure, share_of
from auditor.claims.formulas import FormulaError, evaluate
from auditor.claims.parts import PartReading, readings
from auditor.claims.subject import Counterpart, Subject
from auditor.claims.verdict import Explanation, Nearest, Slip, Verdict


def judge(subject: Subject, text: str, part: str = "") -> Verdict:
    figure = parse_figure(text, chinese=not (text + part).isascii())
    note = ""
    if figure is not None and figure.is_share:
        total = total_of(subject.own.cells)
        figure, note = share_of(figure, total), f"a share of the model's {total:,} parameters"
    if figure is None:
        try:
            value = evaluate(text, subject.letters)
        except FormulaError as error:
            return _nothing(text, None, part, f"{text!r} is neither a count nor a formula: {error}")
        figure, note = Figure(text=text, value=value, low=value, high=value), f"{text} = {value:,}"
    part_readings = _readings(subject, part)
    if not part_readings:
        return _by_value(subject, figure, part)
    return replace(_verdict(subject, figure, part, part_readings), note=note)


def judge_all(subject: Subject, claims: Sequence[tuple[str, str]]) -> tuple[Verdict, ...]:
    """Judge the claims of one text; a module missing in one may be included in another claim."""
    verdicts = [judge(subject, text, part) for text, part in claims]
    moved = {
        dict(slip.fields).get("module"): slip
        for verdict in verdicts
        for explanation in verdict.explanations[:1]
        for slip in explanation.slips
        if slip.slip == "part-in-another"
    }
    return tuple(_moved(verdict, moved) for verdict in verdicts)


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
    if part.strip().lower() in {"active", "activated"}:
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
    return changed(cell, axes=tuple(axes))


# --- the verdict --------------------------------------------------------------------------------


def _verdict(
    subject: Subject,
    figure: Figure,
    part: str,
    part_readings: Sequence[tuple[Counterpart, PartReading]],
) -> Verdict:
    actuals = [_actual(subject, figure, total_of(reading.cells)) for _, reading in part_readings]
    for (whose, reading), actual in zip(part_readings, actuals, strict=True):
        if actual is not None and figure.low <= actual <= figure.high and not figure.experts:
            return _confirmed(subject, figure, part, whose, reading, actual)
    whose, first = part_readings[0]
    actual = actuals[0]
    if actual is None:
        return _nothing(figure.text, figure.value, part, "the config declares no dtype")
    verdict = Verdict(
        text=figure.text,
        claim=figure.value,
        part=part,
        verdict="refuted",
        actual=actual,
        unit=figure.unit,
        reading=_reading(subject, whose, first),
    )
    if figure.experts:
        return _of_experts(figure, verdict, first)
    question = Question(
        subject=subject, figure=figure, part=part, whose=whose, reading=first, actual=actual
    )
    explained = explanations(question)
    nearest = None if explained else _nearest(subject, figure, part, whose, first)
    return replace(verdict, explanations=explained, nearest=nearest)


def _actual(subject: Subject, figure: Figure, parameters: int) -> int | None:
    """Return the true count in the unit of the figure: parameters or bytes."""
    if figure.unit == "parameters":
        return parameters
    return parameters * subject.bits // 8


def _reading(subject: Subject, whose: Counterpart, reading: PartReading) -> str:
    of = "" if whose is subject.own else f" of {whose.target}"
    return f"{reading.label}{of}"


def _confirmed(  # noqa: PLR0913, PLR0917 - all that a verdict says
    subject: Subject,
    figure: Figure,
    part: str,
    whose: Counterpart,
    reading: PartReading,
    actual: int,
) -> Verdict:
    rounded = not figure.exact
    return Verdict(
        text=figure.text,
        claim=figure.value,
        part=part,
        verdict="confirmed to its rounding" if rounded else "confirmed",
        actual=actual,
        unit=figure.unit,
        reading=_reading(subject, whose, reading),
        explanations=_rounding_alone(figure, actual) if rounded else (),
    )


def _rounding_alone(figure: Figure, actual: int) -> tuple[Explanation, ...]:
    if figure.value == actual:
        return ()
    slip = Slip(slip="rounding", difference=figure.value - actual)
    return (Explanation(slips=(slip,), total=figure.value),)


def _of_experts(figure: Figure, verdict: Verdict, reading: PartReading) -> Verdict:
    """Judge a claim like 8x7B: the number of experts, and the size of a model with one expert."""
    experts = {axis.size: axis for cell in reading.cells for axis in cell.axes if axis.active}
    if not experts or figure.experts is None:
        return replace(verdict, note="the model has no experts")
    n = max(experts)
    single = sum(_of_one_expert(cell) for cell in reading.cells)
    claim = figure.value * figure.experts
    explained = replace(
        verdict, claim=claim, note=f"{n} experts; {single:,} parameters with one expert"
    )
    if n == figure.experts and figure.low <= single <= figure.high:
        return replace(explained, verdict="confirmed to its rounding")
    return explained


def _of_one_expert(cell: FoldedTensor) -> int:
    mask = sum(1 << place for place, axis in enumerate(cell.axes) if axis.active is not None)
    return cell.count(mask)


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


def _nearest(
    subject: Subject, figure: Figure, part: str, whose: Counterpart, reading: PartReading
) -> Nearest | None:
    """Return the count nearest to the claim: a class's, or a module's if a part is claimed."""
    counts = dict(_modules(reading.cells)) if part else {}
    for expectation in (whose, *subject.siblings):
        for sibling_reading in readings(part, expectation.cells, expectation.prefix)[:1]:
            counts[f"{part} of {expectation.target}" if part else expectation.target] = total_of(
                sibling_reading.cells
            )
    if not part:
        counts[whose.target] = total_of(reading.cells)
    parameters_by_part = {name: count for name, count in counts.items() if name and count}
    if not parameters_by_part:
        return None
    name = min(
        parameters_by_part,
        key=lambda name: (abs(figure.value - parameters_by_part[name]), len(name), name),
    )
    return Nearest(
        module=name,
        count=parameters_by_part[name],
        difference=figure.value - parameters_by_part[name],
    )


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
