"""What changed of one model between two nights: its findings, its commit, its counts.

A finding is the same on two nights if model, component, kind, file and folded names are the same:
`identity`. Of two that say different things (another shape, another reason) the change is
`changed`. Tonight's findings are the new, the changed and the still open ones; those of before are
the fixed, the changed and the still open ones. Where tonight saw nothing (unaudited, no longer
selected) those of before are neither fixed nor open, but `unseen`. Causes change as findings do:
one is the same on two nights if it concerns the same fields of the same component.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from auditor.formats.csv_rows import Columns, Outcome, Row, causes_of, object_at, with_components
from auditor.formats.json_values import identity

ALARMING = ("error", "warning")
SEVERITIES = (*ALARMING, "info")

Finding = Mapping[str, Any]  # one of an outcome's findings, as JSON

COLUMNS: Columns = {
    "change": str,
    "model": str,
    "kind": str,
    "severity": str,
    "folded": str,
    "file": str,
    "count": int,
    "parameters": int,
    "before": str,
    "after": str,
    "reason": str,
    "accepted": str,
    "commit_sha": str,
    "commit_sha_before": str,
    "component": str,
    "cause": str,
    "fix": str,
}
_EMPTY: Row = dict.fromkeys(COLUMNS)
_OF_FINDING = ("kind", "severity", "file", "count", "parameters", "reason", "component", "cause")
_OF_CAUSE = ("severity", "count", "reason", "component", "fix")
_COUNTS = ("files", "bytes", "tensors", "elements", "parameters", "trainable")


class Change(StrEnum):
    """What a row of changes.csv is about: a cause, a finding, or the model."""

    NEW = "new"
    CHANGED = "changed"
    STILL_OPEN = "still-open"
    FIXED = "fixed"
    UNSEEN = "unseen"

    SELECTED = "selected"
    DESELECTED = "deselected"
    COMMIT = "commit"
    VERDICT = "verdict"
    COUNT = "count"


class Matched(NamedTuple):
    """One finding tonight and before, and what that makes it."""

    change: Change
    tonight: Finding | None
    before: Finding | None
    accepted: str | None = None  # why tonight's is accepted; None: it is not

    @property
    def finding(self) -> Finding:
        """Tonight's; what was known of it where tonight has none."""
        return self.tonight or self.before or {}

    @property
    def alarming(self) -> bool:
        """Whether tonight has it, as an error or a warning."""
        return self.tonight is not None and self.tonight["severity"] in ALARMING


def findings(outcome: Outcome) -> tuple[Finding, ...]:
    """All findings of an outcome and of its parts, each with its component and its causes."""
    return tuple(
        {**finding, "component": one.get("component"), "cause": causes_of(one, at)}
        for one in with_components(outcome)
        for at, finding in enumerate(one.get("findings", ()))
    )


def causes(outcome: Outcome) -> tuple[Finding, ...]:
    """Why, of an outcome and of its parts, in the form of findings: their fields are the names."""
    return tuple(
        {
            "kind": one["cause"],
            "severity": one["severity"],
            "folded": [*one.get("fields", ())],
            "reason": one["summary"],
            "fix": one["fix"],
            "count": len(one["findings"]),
            "component": part.get("component"),
        }
        for part in with_components(outcome)
        for one in part.get("diagnosis", ())
    )


def matched(
    tonight: Sequence[Finding], before: Sequence[Finding], *, unseen: Collection[str | None] = ()
) -> tuple[Matched, ...]:
    """Each finding of the two nights once, tonight's in their order, then the others.

    Several of one identity answer each other in order, those that say the same first. `unseen` are
    the components that tonight could not look at; None stands for the model itself.
    """
    known: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in before:
        known[identity(finding)].append(finding)
    rests = [known[identity(finding)] for finding in tonight]
    matches = [Matched(Change.NEW, finding, None) for finding in tonight]
    for change in (Change.STILL_OPEN, Change.CHANGED):
        for at, finding in enumerate(tonight):
            if matches[at].before is None:
                alike = change is Change.STILL_OPEN
                found = _take(rests[at], finding, alike=alike)
                matches[at] = Matched(change, finding, found) if found else matches[at]
    left = {id(finding) for rest in known.values() for finding in rest}
    for finding in before:
        if id(finding) in left:
            blind = None in unseen or finding.get("component") in unseen
            matches.append(Matched(Change.UNSEEN if blind else Change.FIXED, None, finding))
    return tuple(matches)


def _take(known: list[Finding], finding: Finding, *, alike: bool) -> Finding | None:
    """Take one of the known findings out: one that says the same, or the first."""
    for at, one in enumerate(known):
        if not alike or _alike(finding, one):
            return known.pop(at)
    return None


def _alike(one: Finding, other: Finding) -> bool:
    """Whether two findings say the same, in all keys that both versions wrote."""
    # `folded` stands for the names, and a cause is a change of its own.
    shared = one.keys() & other.keys() - {"names", "cause"}
    return all(one[key] == other[key] for key in shared)


def of_finding(match: Matched) -> Row:
    """A row of changes.csv, but for the model's cells."""
    folded = "; ".join(match.finding["folded"])
    return {**_row(match, _OF_FINDING, _said), "folded": folded, "accepted": match.accepted}


def of_cause(match: Matched) -> Row:
    """A row of changes.csv about a cause: `kind` is empty, `count` says how many findings."""
    return {**_row(match, _OF_CAUSE, itemgetter("reason")), "cause": match.finding["kind"]}


def _row(match: Matched, columns: Sequence[str], said: Callable[[Finding], str]) -> Row:
    row = {**_EMPTY, **{name: match.finding.get(name) for name in columns}}
    row["change"] = match.change.value
    if match.change is Change.CHANGED and match.before is not None:
        row |= {"before": said(match.before), "after": said(match.finding)}
    return row


def _said(finding: Finding) -> str:
    return f"{finding['severity']}, {finding['parameters']} parameters: {finding['reason']}"


def of_model(tonight: Outcome, before: Outcome, *, first: bool) -> Iterator[Row]:
    """What changed of the model itself; `first`: there is no night before to have known it."""
    if not tonight or not before:
        if not first:
            change = Change.DESELECTED if before else Change.SELECTED
            yield {**_EMPTY, "change": change.value}
        return
    known = _facts(before)
    for place, now in _facts(tonight).items():
        if known[place] is not None and now is not None and known[place] != now:
            change, kind = place
            changed = {"change": change.value, "kind": kind, "before": known[place], "after": now}
            yield {**_EMPTY, **changed}


def _facts(outcome: Outcome) -> Mapping[tuple[Change, str | None], Any]:
    """What of a model may change, by what its row says of it; None: it is not known."""
    observed = object_at(outcome, "observed")
    return {
        (Change.COMMIT, None): outcome.get("commit"),
        (Change.VERDICT, None): outcome.get("reason") or outcome.get("verdict"),
        **{(Change.COUNT, name): observed.get(name) for name in _COUNTS},
        (Change.COUNT, "expected"): object_at(outcome, "expected").get("parameters"),
    }
