"""What is new of a night, for who reads one line a model: each cause once, else each kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.formats.text import counted
from auditor.sweep.reporting.changes import Change, Finding
from auditor.sweep.reporting.model_entry import ALARMING, ModelEntry

MOST_LISTED = 50  # of each severity; changes.csv has all

Item = Mapping[str, Any]


class NightNews:
    """Collects what passes: the first lines of each severity, and how many there are."""

    def __init__(self) -> None:
        self._listed: dict[str, list[Item]] = {severity: [] for severity in ALARMING}
        self._count = 0

    def add(self, judged: ModelEntry) -> None:
        for item in _items(judged):
            self._count += 1
            listed = self._listed[item["severity"]]
            if len(listed) < MOST_LISTED:
                listed.append(item)

    def content(self) -> Mapping[str, Any]:
        """Errors first, then in the order of models; `more` are not listed."""
        every = [item for severity in ALARMING for item in self._listed[severity]]
        return {"listed": every[:MOST_LISTED], "more": self._count - len(every[:MOST_LISTED])}


def _items(judged: ModelEntry) -> Iterator[Item]:
    """An item for each cause, or kind, of errors and warnings that are new and not accepted."""
    new = [one for one in judged.alarms if one.change in {Change.NEW, Change.CHANGED}]
    causes = {
        (one.finding["component"], one.finding["kind"]): one.finding
        for one in judged.why
        if one.tonight is not None
    }
    told: set[tuple[Any, ...]] = set()
    for match in new:
        key = component, explained, what = _key(match.finding, causes)
        if key in told:
            continue
        told.add(key)
        alike = [one.finding for one in new if _key(one.finding, causes) == key]
        cause = causes[component, what] if explained else None
        yield {
            "model": judged.model,
            "commit": judged.commits[1],
            "component": component,
            "severity": cause["severity"] if cause else match.finding["severity"],
            "what": what,
            "said": cause["reason"] if cause else _said(alike),
        }


def _key(finding: Finding, causes: Mapping[Any, Finding]) -> tuple[str | None, bool, str]:
    """The component, whether a cause explains the finding, and the cause or the kind."""
    component, name = finding.get("component"), finding.get("cause", "").partition("; ")[0]
    known = (component, name) in causes
    return (component, known, name if known else finding["kind"])


def _said(findings: list[Finding]) -> str:
    """`3 names, 1,024 parameters: encoder.{0-2}.weight`, of all findings of a kind."""
    count = sum(finding["count"] for finding in findings)
    parameters = sum(finding["parameters"] for finding in findings)
    learned = f", {counted(parameters, 'parameter')}" if parameters else ""
    patterns = [pattern for finding in findings for pattern in finding["folded"]]
    more = f" and {len(patterns) - 1:,} more" if len(patterns) > 1 else ""
    names = f"{counted(count, 'name')}{learned}"
    return f"{names}: {patterns[0]}{more}" if patterns else names
