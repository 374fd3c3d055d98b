"""summary.json: a night in numbers, and what an exit code is made of."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.formats.csv_rows import object_at
from auditor.formats.text import counted
from auditor.sweep.reporting.baseline import Baseline
from auditor.sweep.reporting.changes import Change, Finding
from auditor.sweep.reporting.model_entry import ALARMING, ModelEntry, ModelState
from auditor.sweep.store.reading import Alarms, Night

SCHEMA = 1
_TOTALS = ("files", "bytes", "tensors", "elements", "parameters")


class NightSummary:
    """Counts what passes."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.states: Counter[ModelState] = Counter()
        self.reasons: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.alarming: Counter[str] = Counter()
        self.kinds: dict[str, dict[str, Any]] = {}
        self.causes: dict[str, dict[str, Any]] = {}
        self.news = NightNews()
        self.excused = 0

    def add(self, judged: ModelEntry) -> None:
        self.changes.update(str(row["change"]) for row in judged.moves)
        self.changes.update(match.change.value for match in judged.matches)
        if judged.outcome is None or judged.state is None:
            return
        self.states[judged.state] += 1
        self.verdicts[judged.verdict or "pending"] += 1
        if reason := judged.outcome.get("reason"):
            self.reasons[reason] += 1
            self.excused += judged.excused is not None
        observed = object_at(judged.outcome, "observed")
        self.totals.update({name: observed.get(name) or 0 for name in _TOTALS})
        self._alarm(judged)
        self._findings(judged)
        self._causes(judged)
        self.news.add(judged)

    def _alarm(self, judged: ModelEntry) -> None:
        """What of the model there is to be alarmed about, as `Store.alarms` has it."""
        severities = {match.finding["severity"] for match in judged.alarms}
        outcome = judged.outcome or {}
        bad_request = outcome.get("reason") == "bad-request"
        unaudited = judged.verdict in {None, "unaudited"} and judged.excused is None
        unseen = (unaudited and not bad_request) or judged.blind
        error = "error" in severities or judged.unexplained
        warning = severities == {"warning"} and not judged.unexplained
        self.alarming.update(
            errors=error,
            warnings=warning,
            unaudited=unseen and not (error or warning),
            bad_requests=unaudited and bad_request,
            blind_errors=error and unseen,
            blind_warnings=warning and unseen,
        )

    def _findings(self, judged: ModelEntry) -> None:
        of_model = set()
        for match, why in judged.standing:
            finding = match.finding
            kind = self.kinds.setdefault(
                finding["kind"],
                {
                    "severity": finding["severity"],
                    **dict.fromkeys(("models", "findings", "new", "accepted"), 0),
                },
            )
            kind["models"] += finding["kind"] not in of_model
            kind["findings"] += 1
            kind["new"] += match.change.value == "new"
            kind["accepted"] += why is not None
            of_model.add(finding["kind"])

    def _causes(self, judged: ModelEntry) -> None:
        tonight = [match for match in judged.why if match.tonight is not None]
        for name in {match.finding["kind"] for match in tonight}:
            alike = [match for match in tonight if match.finding["kind"] == name]
            cause = self.causes.setdefault(name, dict.fromkeys(("models", "findings", "new"), 0))
            cause["models"] += 1
            cause["findings"] += sum(match.finding["count"] for match in alike)
            cause["new"] += any(match.change.value == "new" for match in alike)

    @property
    def alarms(self) -> Alarms:
        return Alarms(*(self.alarming[name] for name in Alarms._fields))

    @property
    def models(self) -> int:
        return self.verdicts.total()

    def content(
        self, night: Night, previous: Night | None, baseline: Baseline | None
    ) -> Mapping[str, Any]:
        """What is written; keys are only ever added."""
        return {
            "schema": SCHEMA,
            "night": night.night,
            "started": night.started,
            "finished": night.finished,
            "auditor": night.auditor,
            "catalogue": night.catalogue,
            "selection": night.selection,
            "previous": previous
            and {
                "night": previous.night,
                "auditor": previous.auditor,
                "catalogue": previous.catalogue,
            },
            "models": self.models,
            "verdicts": _sorted(self.verdicts),
            "states": {state.value: self.states[state] for state in ModelState},
            "reasons": _sorted(self.reasons),
            "findings": {kind: self.kinds[kind] for kind in self.by_weight()},
            "causes": dict(sorted(self.causes.items(), key=_most_models)),
            "changes": _sorted(self.changes),
            "news": self.news.content(),
            "totals": {name: self.totals[name] for name in _TOTALS},
            "alarms": self.alarms._asdict(),
            "baseline": baseline
            and {
                "entries": len(baseline.entries),
                "accepted": sum(kind["accepted"] for kind in self.kinds.values()),
                "excused": self.excused,
                "notes": list(baseline.said()),
            },
        }

    def by_weight(self) -> list[str]:
        """The kinds of findings, those that alarm first."""
        weights = {name: at for at, name in enumerate((*ALARMING, "info"))}
        return sorted(self.kinds, key=lambda kind: (weights[self.kinds[kind]["severity"]], kind))


def _most_models(cause: tuple[str, Mapping[str, Any]]) -> tuple[int, str]:
    name, counts = cause
    return -counts["models"], name


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


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
