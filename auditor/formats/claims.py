"""Format the verdicts on claims (published counts), as text and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict

from auditor.claims.verdict import Explanation, Slip, Verdict
from auditor.formats.json_values import json_text
from auditor.formats.text import plain_line

_WORDS = {
    "part-left-out": "without {module}",
    "part-counted": "with {module}, which the class does not use",
    "part-in-another": "with {module} counted in {into}",
    "one-of-n": "one of the {n} {module}",
    "no-bias": "without the biases of {module}",
    "no-norm": "without the normalisation of {module}",
    "tied-twice": "{module} counted again, though it is tied",
    "untied-once": "{module} counted with what it is not tied to",
    "buffers-counted": "with buffers, which are not learned: {module}",
    "elements-for-parameters": "stored elements, which hold several parameters each",
    "active-only": "the active experts alone: {module}",
    "all-experts": "all experts, where one token uses some: {module}",
    "trained-only": "without {module}, which is not trained",
    "other-class": "as {class}",
    "other-config": "with {key} = {value}",
    "binary-million": "{base} for a million or a billion",
    "decimal-million": "a million or a billion for {base}",
    "other-dtype": "as bytes of {dtype}",
    "bytes-for-parameters": "bytes for parameters, in {dtype}",
    "truncated": "the last digits cut off",
    "rounding": "rounding",
}


def slip_sentence(slip: Slip) -> str:
    """Describe a slip (a mistake that explains a wrong count) in words."""
    words = {key: f"{value:,}" if type(value) is int else str(value) for key, value in slip.fields}
    if "base" in words:
        words["base"] = "2^20" if words["base"] == f"{2**20:,}" else "2^30"
    if words.get("module") == "all":
        words["module"] = "the model"
    return _WORDS[slip.slip].format(**words)


def render(model: str, verdicts: Sequence[Verdict]) -> str:
    """Return a line for each claim, and an explanation of each wrong one."""
    lines = (line for verdict in verdicts for line in _lines(model, verdict))
    return "".join(map(plain_line, lines))


def _lines(model: str, verdict: Verdict) -> Iterator[str]:
    subject = f"{verdict.part} of {model}" if verdict.part else model
    if verdict.actual is None:
        yield f"{verdict.verdict}: {verdict.text} for {subject}: {verdict.note}"
        return
    yield f"{verdict.verdict}: {verdict.text} for {subject}"
    if verdict.actual is not None:
        reading = "" if verdict.reading in {"", verdict.part} else f" ({verdict.reading})"
        yield f"  {verdict.actual:,} {verdict.unit}{reading}"
    if verdict.note:
        yield f"  {verdict.note}"
    if verdict.verdict == "refuted":
        for number, explanation in enumerate(verdict.explanations):
            if len(explanation.slips) == len(verdict.explanations[0].slips):
                yield "  or" if number else "  it is what one counts"
                yield from _table(verdict, explanation)
    if near := verdict.nearest:
        difference = f"{abs(near.difference):,} {'less' if near.difference > 0 else 'more'}"
        yield (f"  no slip explains it; the nearest is {near.module}: {near.count:,}, {difference}")


def _table(verdict: Verdict, explanation: Explanation) -> Iterator[str]:
    figures = [f"{slip.difference:+,}" for slip in explanation.slips]
    width = max(len(figure) for figure in (*figures, f"{explanation.total:,}"))
    yield f"    {verdict.actual:>{width},}  truly"
    for figure, slip in zip(figures, explanation.slips, strict=True):
        yield f"    {figure:>{width}}  {slip_sentence(slip)} ({slip.slip})"
    yield f"    {explanation.total:>{width},}  claimed"


def verdicts_as_json(model: str, verdicts: Sequence[Verdict]) -> str:
    """Return a line of JSON for each claim."""
    return "".join(f"{json_text(fields(model, verdict))}\n" for verdict in verdicts)


def fields(model: str, verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as a JSON object."""
    explanations = [
        {
            "slips": [
                {"slip": slip.slip, **dict(slip.fields), "difference": slip.difference}
                for slip in explanation.slips
            ],
            "total": explanation.total,
        }
        for explanation in verdict.explanations
    ]
    return {
        "model": model,
        "claim": verdict.claim,
        "text": verdict.text,
        "part": verdict.part,
        "verdict": verdict.verdict,
        "actual": verdict.actual,
        "unit": verdict.unit,
        "reading": verdict.reading,
        "explanations": explanations,
        "nearest": asdict(verdict.nearest) if verdict.nearest else None,
        "note": verdict.note,
    }
