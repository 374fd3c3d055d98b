"""summary.json: a night in numbers, including those that determine the exit code."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from auditor.formats.document import ListedFinding, ObservedObject
from auditor.formats.meanings import kind_meanings
from auditor.formats.text import counted
from auditor.sweep.reporting.baseline import Baseline
from auditor.sweep.reporting.changes import ALARMING, SEVERITIES, ChangeKind, Matched
from auditor.sweep.reporting.model_entry import ModelEntry, ModelState
from auditor.sweep.store.reading import Alarms, Night

SCHEMA = 1
MOST_LISTED = 50  # new items listed for each severity; changes.csv has all
_MOST_UNREAD = 12  # different things that were not checked
_TOTALS = ("files", "bytes", "tensors", "elements", "parameters")

Item = Mapping[str, Any]  # a new or fixed cause or kind of finding


class NightSummary:
    """A counter of the models of a night, their findings and their changes."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.states: Counter[ModelState] = Counter()
        self.reasons: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.alarming = Counter(dict.fromkeys(Alarms._fields, 0))
        self.severities: dict[str, str] = {}  # kind of finding -> severity
        self.kinds: dict[str, Counter[str]] = defaultdict(Counter)
        self.causes: dict[str, Counter[str]] = defaultdict(Counter)
        self.listed: dict[str, list[Item]] = {severity: [] for severity in ALARMING}
        self.mended: list[Item] = []
        self.blind: list[Item] = []
        self.models_by_change: Counter[str] = Counter()  # by change of their alarms
        self.alarms_by_change: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()  # models by what was not checked
        self.news = self.mended_count = self.excused = 0

    def add(self, entry: ModelEntry) -> None:
        self.changes.update(str(row["change"]) for row in entry.moves)
        self.changes.update(match.change.value for match in entry.matches)
        if entry.state is None:
            return
        self.states[entry.state] += 1
        self.verdicts[entry.outcome.verdict or "pending"] += 1
        if reason := entry.outcome.reason:
            self.reasons[reason] += 1
            self.excused += not entry.blind
            if entry.blind and len(self.blind) < MOST_LISTED:
                detail = entry.outcome.detail
                self.blind.append({"model": entry.model, "reason": reason, "detail": detail})
        observed = entry.outcome.observed or ObservedObject()
        self.totals.update({name: getattr(observed, name) or 0 for name in _TOTALS})
        lines = (line for part in entry.outcome.every for line in part.unchecked)
        self.unread.update({line.partition(": ")[0] for line in lines})
        self._alarm(entry, bad_request=reason == "bad-request")
        self._count(entry)
        for item in _items(entry):
            self.news += 1
            if len(listed := self.listed[item["severity"]]) < MOST_LISTED:
                listed.append(item)
        for item in _mended(entry):
            self.mended_count += 1
            if len(self.mended) < MOST_LISTED:
                self.mended.append(item)
        alarms = [match for match in entry.matches if match.finding.severity in ALARMING]
        changes = [
            "accepted" if match.accepted is not None else match.change.value for match in alarms
        ]
        self.alarms_by_change.update(changes)
        self.models_by_change.update({*changes})

    def _alarm(self, entry: ModelEntry, *, bad_request: bool) -> None:
        """Count the model by its worst alarm, like `Store.alarms`: error, warning or unaudited.

        Accepted findings do not count.
        """
        severities = {match.finding.severity for match in entry.alarms}
        is_unseen = entry.blind and not bad_request
        error = "error" in severities or entry.unexplained
        warning = "warning" in severities and not error
        self.alarming.update(
            errors=error,
            warnings=warning,
            unaudited=is_unseen and not (error or warning),
            bad_requests=entry.blind and bad_request,
            blind_errors=error and is_unseen,
            blind_warnings=warning and is_unseen,
        )

    def _count(self, entry: ModelEntry) -> None:
        """Add the model's findings to the counts by kind, and its causes to those by cause."""
        for name, matches in _by_kind(entry.matches):
            self.severities.setdefault(name, matches[0].finding.severity)
            new = sum(match.change is ChangeKind.NEW for match in matches)
            accepted = sum(match.accepted is not None for match in matches)
            self.kinds[name].update(models=1, findings=len(matches), new=new, accepted=accepted)
        for name, matches in _by_kind(entry.causes):
            explained = sum(match.finding.count for match in matches)
            new = int(any(one.change is ChangeKind.NEW and one.accepted is None for one in matches))
            self.causes[name].update(models=1, findings=explained, new=new)

    @property
    def alarms(self) -> Alarms:
        return Alarms(**self.alarming)

    def content(
        self, night: Night, previous: Night | None, baseline: Baseline | None
    ) -> Mapping[str, Any]:
        """Return the content of summary.json; later versions only add keys."""
        kinds = sorted(sorted(self.kinds), key=lambda kind: SEVERITIES.index(self.severities[kind]))
        causes = sorted(self.causes, key=lambda name: (-self.causes[name]["models"], name))
        unread = sorted(self.unread.items(), key=lambda item: (-item[1], item[0]))
        listed = [item for severity in ALARMING for item in self.listed[severity]][:MOST_LISTED]
        states = ("expired", "unused", "accepted")  # the most urgent first
        decisions = sorted(
            baseline.decisions() if baseline else (), key=lambda one: states.index(one["state"])
        )
        return {
            "schema": SCHEMA,
            **_fields_of(
                night, "night", "started", "finished", "auditor", "catalogue", "selection"
            ),
            "previous": previous and _fields_of(previous, "night", "auditor", "catalogue"),
            "models": self.verdicts.total(),
            "verdicts": _sorted(self.verdicts),
            "states": {state.value: self.states[state] for state in ModelState},
            "reasons": _sorted(self.reasons),
            "findings": {
                name: {"severity": self.severities[name], **self.kinds[name]} for name in kinds
            },
            "causes": {name: self.causes[name] for name in causes},
            "changes": _sorted(self.changes),
            "news": {"listed": listed, "more": self.news - len(listed)},
            "fixed": {"listed": self.mended, "more": self.mended_count - len(self.mended)},
            "unaudited": {
                "listed": self.blind,
                "more": self.reasons.total() - self.excused - len(self.blind),
            },
            "errors_and_warnings": _sorted(self.alarms_by_change),
            "models_with": _sorted(self.models_by_change),
            "not_checked": dict(unread[:_MOST_UNREAD]),
            "totals": {name: self.totals[name] for name in _TOTALS},
            "alarms": self.alarms._asdict(),
            "baseline": baseline
            and {
                "entries": len(baseline.entries),
                "accepted": sum(kind["accepted"] for kind in self.kinds.values()),
                "excused": self.excused,
                "notes": list(baseline.notes()),
                "decisions": {
                    "listed": decisions[:MOST_LISTED],
                    "more": len(decisions[MOST_LISTED:]),
                },
            },
        }


def _by_kind(matches: Iterable[Matched]) -> Iterable[tuple[str, Sequence[Matched]]]:
    """Group tonight's findings (as matches) by kind; earlier findings are left out."""
    kinds = defaultdict(list)
    for match in matches:
        if match.tonight is not None:
            kinds[match.tonight.kind].append(match)
    return kinds.items()


def _fields_of(night: Night, *fields: str) -> Mapping[str, Any]:
    return {name: getattr(night, name) for name in fields}


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


def _items(entry: ModelEntry) -> Iterator[Item]:
    """Group new errors and warnings by cause, else by kind, and yield an item for each group."""
    groups: dict[tuple[str | None, bool, str], list[Matched]] = defaultdict(list)
    for match in entry.news:
        finding = match.finding
        cause = next(iter(entry.causes_of(finding)), finding)
        groups[finding.component, cause is finding, cause.kind].append(match)
    for (component, _, kind), matches in groups.items():
        findings = [match.finding for match in matches]
        is_new = any(match.change is ChangeKind.NEW for match in matches)
        advice = _advice().get(kind, "")
        without_cause = replace(findings[0], reason=_description(findings), fix=advice)
        cause = next(iter(entry.causes_of(findings[0])), without_cause)
        yield {
            "model": entry.model,
            "commit": entry.commits[1],
            **entry.push,
            "component": component,
            "severity": cause.severity,
            "change": (ChangeKind.NEW if is_new else ChangeKind.CHANGED).value,
            "what": kind,
            "said": cause.reason,
            "fix": cause.fix,
        }


def _mended(entry: ModelEntry) -> Iterator[Item]:
    """Yield an item for each kind of error or warning that the model had, and has no longer."""
    groups: dict[tuple[str | None, str], list[ListedFinding]] = defaultdict(list)
    for match in entry.matches:
        if match.change is ChangeKind.FIXED and match.finding.severity in ALARMING:
            groups[match.finding.component, match.finding.kind].append(match.finding)
    for (component, kind), findings in groups.items():
        yield {
            "model": entry.model,
            "commit": entry.commits[1],
            **entry.push,
            "component": component,
            "severity": findings[0].severity,
            "change": ChangeKind.FIXED.value,
            "what": kind,
            "said": _description(findings),
        }


def _urgency(decision: Mapping[str, Any]) -> int:
    return ("expired", "unused", "accepted").index(decision["state"])


def _bounded(items: Sequence[Item]) -> Mapping[str, Any]:
    return {"listed": items[:MOST_LISTED], "more": len(items[MOST_LISTED:])}


@cache
def _advice() -> Mapping[str, str]:
    """Return what to do about each kind of finding."""
    return {meaning.name: meaning.to_do for meaning in kind_meanings()}


def _description(findings: Sequence[ListedFinding]) -> str:
    """Describe the findings of a kind: `3 names, 1,024 parameters: encoder.{0-2}.weight`."""
    count = sum(finding.count for finding in findings)
    parameters = sum(finding.parameters for finding in findings)
    learned = f", {counted(parameters, 'parameter')}" if parameters else ""
    patterns = [pattern for finding in findings for pattern in finding.folded]
    more = f" and {len(patterns) - 1:,} more" if len(patterns) > 1 else ""
    names = f"{counted(count, 'name')}{learned}"
    return f"{names}: {patterns[0]}{more}" if patterns else names
