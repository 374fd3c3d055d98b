"""The changes of one model between two nights: its findings, its commit, its counts.

Findings of two nights match if model, component, kind, file and folded names are equal
(`identity`). If their other values differ (another shape, another reason) the change is `changed`.
Tonight's findings are `new`, `changed` or `still-open`; earlier findings are `fixed`, `changed` or
`still-open`. If the model could not be audited tonight, or is no longer selected, its earlier
findings are neither fixed nor open but `unseen`. Causes are compared in the same way: they match if
they concern the same fields of the same component.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from auditor.formats.as_csv import Columns, Outcome, Row, causes_of, object_at, with_components
from auditor.formats.json_values import identity

ALARMING = ("error", "warning")
SEVERITIES = (*ALARMING, "info")

Finding = Mapping[str, Any]  # a finding of an outcome, as JSON

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
    "last_modified": str,
    "commit_authors": str,
    "component": str,
    "cause": str,
    "fix": str,
}
_EMPTY: Row = dict.fromkeys(COLUMNS)
_OF_FINDING = ("kind", "severity", "file", "count", "parameters", "reason", "component", "cause")
_OF_CAUSE = ("severity", "count", "reason", "component", "fix")
_COUNTS = ("files", "bytes", "tensors", "elements", "parameters", "trainable")


class ChangeKind(StrEnum):
    """The kind of change in a row of changes.csv: of a finding or cause, or of the model."""

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
    """A finding of tonight, the matching finding of an earlier night, and the change."""

    change: ChangeKind
    tonight: Finding | None
    before: Finding | None
    accepted: str | None = None  # reason why tonight's finding is accepted; None: not accepted

    @property
    def finding(self) -> Finding:
        """Tonight's finding; the earlier finding if tonight's is None."""
        return self.tonight or self.before or {}

    @property
    def alarming(self) -> bool:
        """Whether the finding is an error or a warning tonight."""
        return self.tonight is not None and self.tonight["severity"] in ALARMING


def findings(outcome: Outcome) -> tuple[Finding, ...]:
    """Return all findings of an outcome and its components, each with its component and causes."""
    return tuple(
        {**finding, "component": part.get("component"), "cause": causes_of(part, at)}
        for part in with_components(outcome)
        for at, finding in enumerate(part.get("findings", ()))
    )


def causes(outcome: Outcome) -> tuple[Finding, ...]:
    """Return the causes of an outcome and its components in the form of findings.

    The config fields of a cause take the place of tensor names.
    """
    return tuple(
        {
            "kind": cause["cause"],
            "severity": cause["severity"],
            "folded": [*cause.get("fields", ())],
            "reason": cause["summary"],
            "fix": cause["fix"],
            "count": len(cause["findings"]),
            "component": part.get("component"),
        }
        for part in with_components(outcome)
        for cause in part.get("diagnosis", ())
    )


def matched(
    tonight: Sequence[Finding], before: Sequence[Finding], *, unseen: Collection[str | None] = ()
) -> tuple[Matched, ...]:
    """Match the findings of two nights: tonight's in their order, then unmatched earlier ones.

    Findings with equal identities are matched in order, equal findings first. `unseen` are the
    components that could not be audited tonight; None is the model itself.
    """
    earlier_by_identity: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in before:
        earlier_by_identity[identity(finding)].append(finding)
    unmatched = [earlier_by_identity[identity(finding)] for finding in tonight]
    matches = [Matched(ChangeKind.NEW, finding, None) for finding in tonight]
    for change in (ChangeKind.STILL_OPEN, ChangeKind.CHANGED):
        for at, finding in enumerate(tonight):
            if matches[at].before is None:
                is_equal = change is ChangeKind.STILL_OPEN
                earlier = _take(unmatched[at], finding, is_equal=is_equal)
                matches[at] = Matched(change, finding, earlier) if earlier else matches[at]
    unmatched_ids = {id(finding) for rest in earlier_by_identity.values() for finding in rest}
    for finding in before:
        if id(finding) in unmatched_ids:
            is_unseen = None in unseen or finding.get("component") in unseen
            matches.append(
                Matched(ChangeKind.UNSEEN if is_unseen else ChangeKind.FIXED, None, finding)
            )
    return tuple(matches)


def _take(candidates: list[Finding], finding: Finding, *, is_equal: bool) -> Finding | None:
    """Remove and return the first candidate (if `is_equal`, the first that equals `finding`).

    Return None if there is no such candidate.
    """
    for at, candidate in enumerate(candidates):
        if not is_equal or _are_equal(finding, candidate):
            return candidates.pop(at)
    return None


def _are_equal(first: Finding, second: Finding) -> bool:
    """Whether two findings are equal in all keys that both versions of the auditor wrote."""
    # Equal `folded` means equal names; changes of causes have rows of their own.
    shared_keys = first.keys() & second.keys() - {"names", "cause"}
    return all(first[key] == second[key] for key in shared_keys)


def of_finding(match: Matched) -> Row:
    """Return a row of changes.csv for a finding, without the cells about its model."""
    folded = "; ".join(match.finding["folded"])
    row = _row(match, _OF_FINDING, _finding_text)
    return {**row, "folded": folded, "accepted": match.accepted}


def of_cause(match: Matched) -> Row:
    """Return a row of changes.csv for a cause: `kind` is empty, `count` counts its findings."""
    return {**_row(match, _OF_CAUSE, itemgetter("reason")), "cause": match.finding["kind"]}


def _row(match: Matched, columns: Sequence[str], text_of: Callable[[Finding], str]) -> Row:
    row = {**_EMPTY, **{name: match.finding.get(name) for name in columns}}
    row["change"] = match.change.value
    if match.change is ChangeKind.CHANGED and match.before is not None:
        row |= {"before": text_of(match.before), "after": text_of(match.finding)}
    return row


def _finding_text(finding: Finding) -> str:
    return f"{finding['severity']}, {finding['parameters']} parameters: {finding['reason']}"


def of_model(tonight: Outcome, before: Outcome, *, first: bool) -> Iterator[Row]:
    """Yield rows for changes of the model itself; `first` is whether this is the first night."""
    if not tonight or not before:
        if not first:
            change = ChangeKind.DESELECTED if before else ChangeKind.SELECTED
            yield {**_EMPTY, "change": change.value}
        return
    facts_before = _facts(before)
    for key, now in _facts(tonight).items():
        earlier = facts_before[key]
        if earlier is not None and now is not None and earlier != now:
            change, kind = key
            cells = {"change": change.value, "kind": kind, "before": earlier, "after": now}
            yield {**_EMPTY, **cells}


def _facts(outcome: Outcome) -> Mapping[tuple[ChangeKind, str | None], Any]:
    """Return a model's commit, verdict and counts, keyed by (change, kind); None if unknown."""
    observed = object_at(outcome, "observed")
    return {
        (ChangeKind.COMMIT, None): outcome.get("commit"),
        (ChangeKind.VERDICT, None): outcome.get("reason") or outcome.get("verdict"),
        **{(ChangeKind.COUNT, name): observed.get(name) for name in _COUNTS},
        (ChangeKind.COUNT, "expected"): object_at(outcome, "expected").get("parameters"),
    }
