"""The head of a report: the verdict, the account (used + unused = stored), the page on the Hub."""

from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from auditor.findings import (
    Finding,
    Mismatched,
    Missing,
    NewlyInitialized,
    Severity,
    Unexpected,
    Unused,
)
from auditor.formats.text import Styled, counted
from auditor.report import Report, Unaudited, Verdict

_ENDED: Mapping[Verdict, str] = {
    "findings": "with findings",
    "unaudited": "not audited",
    "clean": "clean",
}
_BESIDE = (Unused.kind, Unexpected.kind)  # stored, and not used


def word(outcome: Report | Unaudited) -> Styled:
    """One word for how it ended, and its style."""
    if isinstance(outcome, Unaudited):
        return "NOT AUDITED", "bold yellow"
    if outcome.verdict == "clean":
        return "OK", "bold green"
    found = {finding.severity for one in outcome.every for finding in one.findings}
    warned = Severity.ERROR not in found and Severity.WARNING in found
    return ("WARNING", "bold yellow") if warned else ("ERROR", "bold red")


def sentence(outcome: Report | Unaudited) -> str:
    """Return the sentence for the verdict's word."""
    alarms = [one for each in outcome.every for one in each.findings if _alarms(one)]
    if isinstance(outcome, Unaudited):
        beside = f" (and {counted(len(alarms), 'finding')})" if alarms else ""
        return f"{outcome.reason}: {outcome.detail}{beside}"
    if outcome.parts:
        return _of_parts(outcome, alarms)
    if outcome.residual and not alarms:
        left = f"{outcome.residual:,} parameters are explained by no finding"
        return f"{left}, which is a fault of this program: please report it."
    said = [*_of_tensors(alarms, outcome), *_of_kinds(alarms)]
    if any(one.kind in {Missing.kind, Mismatched.kind} for one in alarms):
        return _sentence(said)
    return _sentence([_stored_part(outcome), *said])


def _stored_part(report: Report) -> str:
    """Say how much of what the class needs is stored."""
    target, expected = report.target or "the config", report.expected
    if expected is None:
        tensors = report.observed.tensors if report.observed else 0
        return f"{counted(tensors, 'tensor')} read; the config does not say what to expect"
    if any(_alarms(one) and one.kind not in _BESIDE for one in report.ignored):
        return "nothing is wrong beside what --ignore leaves out"
    every = expected.tensors
    started = (one for one in report.findings if one.kind == NewlyInitialized.kind)
    afresh = sum(one.evidence.get("learned", one.count) for one in started)
    shapes = report.observed is not None and report.observed.parameters is not None
    fit = "stored, in the right shapes" if shapes else "named by the index; shapes were not seen"
    if any(one.kind.startswith("bad-") for one in report.findings):
        return f"no tensor that {target} needs is known to be missing"
    if afresh:
        rest = f"{counted(every - afresh, 'tensor')} of {target}"
        return (
            f"{rest} {'is' if every - afresh == 1 else 'are'} {fit}; {afresh:,} newly initialized"
        )
    return f"all {every:,} tensors that {target} needs are {fit}"


def _of_tensors(alarms: list[Finding], report: Report) -> Iterator[str]:
    """Missing, of another shape, unexpected: how many of each."""
    target = report.target or "the config"
    lacking = _names(alarms, Missing.kind)
    if lacking:
        needs = f"{counted(lacking, 'tensor')} that {target} needs"
        yield f"{needs} {'is' if lacking == 1 else 'are'} not stored"
    if other := _names(alarms, Mismatched.kind):
        whose = "" if lacking else f" that {target} needs"
        verb = "has another shape" if other == 1 else "have other shapes"
        yield f"{counted(other, 'tensor')}{whose} {verb}"
    if more := _names(alarms, Unexpected.kind):
        yield f"{counted(more, 'stored tensor')} {'is' if more == 1 else 'are'} unexpected"


def _names(alarms: list[Finding], kind: str) -> int:
    return sum(one.count for one in alarms if one.kind == kind)


def _of_kinds(alarms: list[Finding]) -> Iterator[str]:
    """The kinds that the sentence has no words for."""
    told = {Missing.kind, Mismatched.kind, Unexpected.kind}
    kinds = Counter(one.kind for one in alarms if one.kind not in told)
    if kinds:
        yield "also " + ", ".join(
            f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items()
        )


def _of_parts(outcome: Report, alarms: list[Finding]) -> str:
    ended = Counter(part.verdict for part in outcome.parts)
    said = [f"{ended[verdict]:,} {said}" for verdict, said in _ENDED.items() if ended[verdict]]
    parts = f"{counted(len(outcome.parts), 'model')} in one repository: {', '.join(said)}"
    return _sentence([parts, *_of_kinds([one for one in alarms if one in outcome.findings])])


def _sentence(parts: list[str]) -> str:
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}."


def _alarms(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO


# --- the account ------------------------------------------------------------------------------


def account(outcome: Report | Unaudited) -> str:
    """`102 used + 5 unused = 107 parameters stored`, and what of the expected ones is not there.

    Law 3 in a line; empty where no header was read.
    """
    stored = outcome.observed.parameters if outcome.observed else None
    if stored is None:
        return ""
    if outcome.expected is None:
        return f"{counted(stored, 'parameter')} stored"
    terms = _terms(outcome)
    beside = {kind: terms.pop(kind, 0) for kind in _BESIDE}
    residual = (outcome.residual or 0) if isinstance(outcome, Report) else 0
    used = stored - sum(beside.values()) - residual
    others = "".join(f" + {count:,} {kind}" for kind, count in beside.items() if count)
    if residual:
        others += f" {'+' if residual > 0 else '-'} {abs(residual):,} not explained"
    whole = f"{counted(stored, 'parameter')} stored"
    said = f"{used:,} used{others} = {whole}" if others else f"{whole}, all of them used"
    if used == outcome.expected.parameters:
        return said
    lacking = ", ".join(_term(kind, count) for kind, count in terms.items() if count)
    return f"{said}; {outcome.expected.parameters:,} expected ({lacking})"


def _terms(outcome: Report | Unaudited) -> dict[str, int]:
    """Return what findings explain by kind, ignored ones included."""
    terms: dict[str, int] = {}
    for finding in (*outcome.findings, *outcome.ignored):
        terms[finding.kind] = terms.get(finding.kind, 0) + finding.explains
    return terms


def _term(kind: str, explains: int) -> str:
    """Only a wrong shape explains in either direction; of the other kinds the name says which."""
    if kind == Mismatched.kind:
        return f"{explains:+,} {kind}"
    return f"{abs(explains):,} {'behind ' if kind.startswith('bad-') else ''}{kind}"


# --- where people see it -----------------------------------------------------------------------


_HUB = "https://huggingface.co"
_FROM_HUB = frozenset({"hub", "cache", "bundled"})  # sources whose models have a Hub id


def address(outcome: Report | Unaudited, file: str | None = None) -> str | None:
    """The page of the audited commit; None where the model is not on the Hub."""
    if outcome.model is None or outcome.source not in _FROM_HUB:
        return None
    place = f"{_HUB}/{quote(outcome.model, safe='/')}"
    revision = quote(outcome.commit or "main", safe="")
    if file is None:
        return f"{place}/tree/{revision}"
    return f"{place}/blob/{revision}/{quote(file, safe='/')}"
