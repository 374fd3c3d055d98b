"""What changed of one model between two nights: its findings, its commit, its counts.

A finding is the same on two nights if model, component, kind, file and folded names are the same:
`identity`. Of two that say different things (another shape, another reason) the change is
`changed`. Tonight's findings are the new, the changed and the still open ones; those of before are
the fixed, the changed and the still open ones. Where tonight saw nothing (unaudited, no longer
selected) those of before are neither fixed nor open, but `unseen`. Causes change as findings do:
one is the same on two nights if it concerns the same fields of the same component.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from auditor.formats.csv_rows import Outcome, Row, causes_of, object_at, with_components
from auditor.formats.json_values import identity

Finding = Mapping[str, Any]  # one of an outcome's findings, as JSON

COLUMNS = (
    "change",
    "model",
    "kind",
    "severity",
    "folded",
    "file",
    "count",
    "parameters",
    "before",
    "after",
    "reason",
    "accepted",
    "commit_sha",
    "commit_sha_before",
    "component",
    "cause",
    "fix",
)
COUNTS = ("files", "bytes", "tensors", "elements", "parameters", "trainable")


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

    @property
    def finding(self) -> Finding:
        """Tonight's; what was known of it where tonight has none."""
        found = self.tonight if self.tonight is not None else self.before
        return found if found is not None else {}


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
    same = [_take(known[identity(one)], one, alike=True) for one in tonight]
    other = [
        found or _take(known[identity(one)], one, alike=False)
        for one, found in zip(tonight, same, strict=True)
    ]
    answers = zip(tonight, same, other, strict=True)
    left = {id(finding) for rest in known.values() for finding in rest}
    return (
        *(Matched(_change(found, any_), one, any_) for one, found, any_ in answers),
        *(Matched(_gone(one, unseen), None, one) for one in before if id(one) in left),
    )


def _gone(finding: Finding, unseen: Collection[str | None]) -> Change:
    blind = None in unseen or finding.get("component") in unseen
    return Change.UNSEEN if blind else Change.FIXED


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


def _change(same: Finding | None, known: Finding | None) -> Change:
    if same is not None:
        return Change.STILL_OPEN
    return Change.NEW if known is None else Change.CHANGED


def of_finding(match: Matched) -> Row:
    """A row of changes.csv, but for the model's cells and why it is accepted."""
    finding = match.finding
    known = match.change is Change.CHANGED and match.before is not None
    return {
        **_EMPTY,
        **{name: finding.get(name) for name in _KEPT},
        "change": match.change.value,
        "folded": "; ".join(finding["folded"]),
        "before": _said(match.before) if known and match.before else None,
        "after": _said(finding) if known else None,
    }


def of_cause(match: Matched) -> Row:
    """A row of changes.csv about a cause: `kind` is empty, `count` says how many findings."""
    cause = match.finding
    known = match.change is Change.CHANGED and match.before is not None
    return {
        **_EMPTY,
        **{name: cause[name] for name in ("severity", "count", "reason", "component", "fix")},
        "change": match.change.value,
        "cause": cause["kind"],
        "before": match.before["reason"] if known and match.before else None,
        "after": cause["reason"] if known else None,
    }


def says_nothing_new(row: Row) -> bool:
    """Whether a row says nothing new: what is still open, and infos, are rows of open.csv."""
    return row["change"] == Change.STILL_OPEN.value or row["severity"] == "info"


_KEPT = ("kind", "severity", "file", "count", "parameters", "reason", "component", "cause")


def _said(finding: Finding) -> str:
    return f"{finding['severity']}, {finding['parameters']} parameters: {finding['reason']}"


def of_model(tonight: Outcome | None, before: Outcome | None, *, first: bool) -> Iterator[Row]:
    """What changed of the model itself; `first`: there is no night before to have known it."""
    if tonight is None or before is None:
        if not first:
            change = Change.SELECTED if before is None else Change.DESELECTED
            yield {**_EMPTY, "change": change.value}
        return
    yield from _row(Change.COMMIT, None, before.get("commit"), tonight.get("commit"))
    yield from _row(Change.VERDICT, None, _verdict(before), _verdict(tonight))
    then, now = object_at(before, "observed"), object_at(tonight, "observed")
    for name in COUNTS:
        yield from _row(Change.COUNT, name, then.get(name), now.get(name))
    implied = (
        object_at(before, "expected").get("parameters"),
        object_at(tonight, "expected").get("parameters"),
    )
    yield from _row(Change.COUNT, "expected", *implied)


def _row(change: Change, kind: str | None, before: Any, after: Any) -> Iterable[Row]:
    """A row where two known values differ."""
    if before is None or after is None or before == after:
        return ()
    return ({**_EMPTY, "change": change.value, "kind": kind, "before": before, "after": after},)


def _verdict(outcome: Outcome) -> str | None:
    return outcome.get("reason") or outcome.get("verdict")


_EMPTY: Row = dict.fromkeys(COLUMNS)
