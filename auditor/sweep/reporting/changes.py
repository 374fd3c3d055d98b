"""The changes of one model between two nights: its findings, its commit, its counts.

Findings of two nights match if model, component, kind, file and folded names are equal
(`ListedFinding.identity`). If their other values differ (another shape, another reason) the change
is `changed`. Tonight's findings are `new`, `changed` or `still-open`; earlier findings are `fixed`,
`changed` or `still-open`. If the model could not be audited tonight, or is no longer selected, its
earlier findings are neither fixed nor open but `unseen`. Causes are compared in the same way: they
match if they concern the same fields of the same component.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from auditor.findings import RecordedFinding, Severity
from auditor.formats.as_csv import Columns, Row
from auditor.formats.document import (
    Document,
    ExpectedObject,
    ListedFinding,
    ObservedObject,
    listed_causes,
    listed_findings,
)

ALARMING = (Severity.ERROR, Severity.WARNING)
SEVERITIES = (*ALARMING, Severity.INFO)

NO_OUTCOME = Document()  # of a model that is not selected

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
_UNCOMPARED: Mapping[str, Any] = {"names": (), "causes": (), "finding": None}
_ABSENT = (None, UNSET)  # values of keys that a version did not write
_EMPTY: Row = dict.fromkeys(COLUMNS)
_OF_FINDING = ("kind", "severity", "file", "count", "parameters", "reason", "component")
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
    tonight: ListedFinding | None
    before: ListedFinding | None
    accepted: str | None = None  # reason why tonight's finding is accepted; None: not accepted

    @property
    def finding(self) -> ListedFinding:
        """Tonight's finding; the earlier finding if tonight's is None."""
        finding = self.tonight or self.before
        if finding is None:
            raise LookupError("neither night has the finding")
        return finding

    @property
    def alarming(self) -> bool:
        """Whether the finding is an error or a warning tonight."""
        return self.tonight is not None and self.tonight.severity in ALARMING


def findings(outcome: Document) -> tuple[ListedFinding, ...]:
    """Return all findings of an outcome and its components, each with its component and causes."""
    return tuple(chain.from_iterable(map(listed_findings, outcome.every)))


def causes(outcome: Document) -> tuple[ListedFinding, ...]:
    """Return the causes of an outcome and its components in the form of findings.

    The config fields of a cause take the place of tensor names.
    """
    return tuple(chain.from_iterable(map(listed_causes, outcome.every)))


def matched(
    tonight: Sequence[ListedFinding],
    before: Sequence[ListedFinding],
    *,
    unseen: Collection[str | None] = (),
) -> tuple[Matched, ...]:
    """Match the findings of two nights: tonight's in their order, then unmatched earlier ones.

    Findings with equal identities are matched in order, equal findings first. `unseen` are the
    components that could not be audited tonight; None is the model itself.
    """
    earlier_by_identity: dict[tuple[str, ...], list[ListedFinding]] = defaultdict(list)
    for finding in before:
        earlier_by_identity[finding.identity].append(finding)
    unmatched = [earlier_by_identity[finding.identity] for finding in tonight]
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
            is_unseen = None in unseen or finding.component in unseen
            change = ChangeKind.UNSEEN if is_unseen else ChangeKind.FIXED
            matches.append(Matched(change, None, finding))
    return tuple(matches)


def _take(
    candidates: list[ListedFinding], finding: ListedFinding, *, is_equal: bool
) -> ListedFinding | None:
    """Remove and return the first candidate (if `is_equal`, the first that equals `finding`).

    Return None if there is no such candidate.
    """
    for at, candidate in enumerate(candidates):
        if not is_equal or _are_equal(finding, candidate):
            return candidates.pop(at)
    return None


def _are_equal(first: ListedFinding, second: ListedFinding) -> bool:
    """Whether two findings are equal in all keys that both versions of the auditor wrote."""
    # Equal `folded` means equal names; changes of causes have rows of their own.
    if replace(first, **_UNCOMPARED) != replace(second, **_UNCOMPARED):
        return False
    pairs = (
        (getattr(first.finding, key, None), getattr(second.finding, key, None))
        for key in RecordedFinding.__struct_fields__
        if key != "names"
    )
    return all(one in _ABSENT or other in _ABSENT or one == other for one, other in pairs)


def of_finding(match: Matched) -> Row:
    """Return a row of changes.csv for a finding, without the cells about its model."""
    folded = "; ".join(match.finding.folded)
    row = _row(match, _OF_FINDING, _finding_text)
    cause = "; ".join(match.finding.causes)
    return {**row, "folded": folded, "accepted": match.accepted, "cause": cause}


def of_cause(match: Matched) -> Row:
    """Return a row of changes.csv for a cause: `kind` is empty, `count` counts its findings."""
    row = _row(match, _OF_CAUSE, attrgetter("reason"))
    return {**row, "accepted": match.accepted, "cause": match.finding.kind}


def _row(match: Matched, columns: Sequence[str], text_of: Callable[[ListedFinding], str]) -> Row:
    row = {**_EMPTY, **{name: getattr(match.finding, name) for name in columns}}
    row["change"] = match.change.value
    if match.change is ChangeKind.CHANGED and match.before is not None:
        row |= {"before": text_of(match.before), "after": text_of(match.finding)}
    return row


def _finding_text(finding: ListedFinding) -> str:
    return f"{finding.severity}, {finding.parameters} parameters: {finding.reason}"


def of_model(tonight: Document, before: Document, *, first: bool) -> Iterator[Row]:
    """Yield rows for changes of the model itself; `first` is whether this is the first night."""
    if NO_OUTCOME in (tonight, before):
        if not first:
            change = ChangeKind.SELECTED if before is NO_OUTCOME else ChangeKind.DESELECTED
            yield {**_EMPTY, "change": change.value}
        return
    facts_before = _facts(before)
    for key, now in _facts(tonight).items():
        earlier = facts_before[key]
        if earlier is not None and now is not None and earlier != now:
            change, kind = key
            cells = {"change": change.value, "kind": kind, "before": earlier, "after": now}
            yield {**_EMPTY, **cells}


def _facts(outcome: Document) -> Mapping[tuple[ChangeKind, str | None], Any]:
    """Return a model's commit, verdict and counts, keyed by (change, kind); None if unknown."""
    observed, expected = outcome.observed or ObservedObject(), outcome.expected or ExpectedObject()
    return {
        (ChangeKind.COMMIT, None): outcome.commit,
        (ChangeKind.VERDICT, None): outcome.reason or outcome.verdict,
        **{(ChangeKind.COUNT, name): getattr(observed, name) for name in _COUNTS},
        (ChangeKind.COUNT, "expected"): expected.parameters,
    }
