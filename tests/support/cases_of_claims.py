"""Cases of `claim`: published counts of one model, and the verdict on each.

A row is [part, text, verdict]. The verdict on a refuted claim is the list of the slips of its first
explanation, the largest first, each with its module (or "") and its difference; none if no slip
explains it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.cases import Case, build

from auditor import Claim, claim
from auditor.claims.verdict import Verdict


def judged(case: Case, place: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the expected verdict on each claim of a case, and the verdict that it gets."""
    options = dict(case.keys.get("claim", {}))
    model = options.pop("of", None) or str(build(case, place / "model"))
    rows = case.keys["claims"]
    claims = [Claim(str(text), part) for part, text, _ in rows]
    found = claim(model, claims, say=lambda _line: None, **options)
    names = [f"{part} {text}".strip() for part, text, _ in rows]
    expected = {name: expected for name, (_, _, expected) in zip(names, rows, strict=True)}
    return expected, {name: _verdict(one) for name, one in zip(names, found, strict=True)}


def _verdict(verdict: Verdict) -> str | list[list[Any]]:
    for explanation in verdict.explanations:
        differences = sum(slip.difference for slip in explanation.slips)
        assert differences == (verdict.claim or 0) - (verdict.actual or 0)
    if verdict.verdict != "refuted":
        return verdict.verdict
    slips = verdict.explanations[0].slips if verdict.explanations else ()
    return [[slip.slip, dict(slip.fields).get("module", ""), slip.difference] for slip in slips]
